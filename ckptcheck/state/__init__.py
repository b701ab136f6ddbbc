"""What a training state is: tensors, trees and the one noun that rules judge. Standard library only at import."""
