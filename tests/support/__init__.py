"""What several tests share: clients, sites and worlds to try things on."""
