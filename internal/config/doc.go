// Package config reads one YAML file into the caller's struct, strictly, and
// reports all mistakes in it at once.
//
// Invariant: a value of Load or Watch came from a file in which every key was
// known, every value had the field's type, every ${NAME} was set and every
// Validate method returned nil; any other file gives an error and no value.
//
// The package contains no field of the product: each package owns its Options
// struct with a Validate method that returns errors (joined) of the form
// "field: sentence", and config puts the place and the path of the section in
// front, e.g.
//
//	warmroute.yaml:12: fleet.replicas[2].address: "10.0.0.1" has no port
//
// Durations are written with a unit ("50ms", "2m"). ${NAME} and
// ${NAME:-default} are expanded inside string values only, after parsing, so a
// variable can never add structure; $${ is a literal ${.
//
// Watching polls the content and uses no file events: only this works alike
// for editors, bind mounts, network file systems and the symlink swaps of
// Kubernetes config maps.
package config
