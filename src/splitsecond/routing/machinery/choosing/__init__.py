"""Parts of policies that choose among their branches: speed, price, exploration."""
