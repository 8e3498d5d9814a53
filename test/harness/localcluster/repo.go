package localcluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// moduleLine is the first line of the go.mod that marks the top of the repository.
const moduleLine = "module github.com/lockstep-sh/lockstep\n"

// Root returns the top folder of the repository that the working directory is in. It goes
// by the working directory, not by the binary, which may be built with -trimpath.
func Root() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(data, []byte(moduleLine)) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the repository: no lockstep go.mod in %s or above", start)
		}
	}
}

// localDir returns <repository>/.local, where everything that is built or run stays.
func localDir() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, ".local"), nil
}

// Roles returns the manifests of the repository at root that give the accounts of all three commands their rights.
func Roles(root string) []string {
	manifests := filepath.Join(root, "manifests")
	return []string{filepath.Join(manifests, "rbac"), filepath.Join(manifests, "descheduler", "workload", "rbac.yaml")}
}

// Binary returns the path of a program that Build or BuildTools makes.
func Binary(name string) (string, error) {
	local, err := localDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(local, "bin", name), nil
}
