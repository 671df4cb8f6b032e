# The modules that a clone's `make test` covers, for scripts that source this from
# the top folder. Nested modules that only tests need (test/compose, test/chart and
# so on) have targets of their own.
modules=(. render lab test) # folders
packages() { # folder: prints the import paths of the module's packages
  go -C "$1" list ./...
}
