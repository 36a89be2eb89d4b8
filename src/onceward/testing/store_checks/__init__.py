"""The store suite's checks, a module a topic; each public function is one check."""
