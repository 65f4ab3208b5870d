"""What the policies that choose among branches have in common."""
