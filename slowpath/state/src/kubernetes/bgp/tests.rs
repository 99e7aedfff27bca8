//! Both generations of policies, as YAML.
