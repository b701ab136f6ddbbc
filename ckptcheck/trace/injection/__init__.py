"""How the recorder gets into the processes of a script: through the environment, before its first line."""
