"""What people see: commands, web pages and plots."""
