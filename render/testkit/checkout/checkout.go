// Package checkout finds the project's source on the machine that tests run on.
package checkout

import (
	"os"
	"path/filepath"
)

// Root is the top folder: the nearest one above the working folder with the scripts, so
// that it is the same in nested modules. Outside a checkout it is the working folder, in
// which tests find no files of the project.
func Root() string {
	dir, err := os.Getwd()
	if err != nil {
		return "."
	}
	for top := dir; ; top = filepath.Dir(top) {
		if _, err := os.Stat(filepath.Join(top, "scripts", "install-envoy.sh")); err == nil {
			return top
		}
		if top == filepath.Dir(top) {
			return dir
		}
	}
}
