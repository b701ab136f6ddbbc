"""Every way to write a result down; sees nothing but findings and the result around them."""
