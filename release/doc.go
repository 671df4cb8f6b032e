// Command release builds the published files: for each platform an archive with
// the static binaries, one container image for all platforms as an OCI archive
// (no daemon, no registry), a bill of materials in CycloneDX, and checksums.
//
//	go run . -out ../dist
//
// The version is the newest one of CHANGELOG.md; times are those of the last
// commit. The same commit gives the same bytes on every machine with the same
// Go release: nothing of the machine, the path, the clock or the user is in
// them. A checkout with changes is refused, and without -snapshot a commit whose
// changelog has changes that no version has.
package main
