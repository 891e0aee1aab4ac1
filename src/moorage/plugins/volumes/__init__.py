"""What the plugins about storage share: claims, migrated drivers, which volumes a node holds, which volume suits a claim."""
