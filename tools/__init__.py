"""Tools of this repository, which no user installs: fault runs, attacks, checks of clusters, and recorded decisions."""
