package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// platform is an operating system and an architecture, as Go names them.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// desks are the platforms, besides those of the cluster, on which people run kubectl.
var desks = []platform{{"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}}

// parsePlatforms reads a list such as linux/amd64,linux/arm64.
func parsePlatforms(text string) ([]platform, error) {
	var all []platform
	for item := range strings.SplitSeq(text, ",") {
		os, arch, ok := strings.Cut(item, "/")
		if !ok || os != "linux" || arch == "" {
			return nil, fmt.Errorf("checking -platforms: %q is not of the form linux/ARCHITECTURE", item)
		}
		all = append(all, platform{os, arch})
	}
	return all, nil
}

// binaryName returns what the binary of cmd/COMMAND is called, as in the Makefile.
func binaryName(command string) string {
	if isPlugin(command) {
		return command
	}
	return "lockstep-" + command
}

// isPlugin reports whether a command is a plugin of kubectl, which people run on their own computers.
func isPlugin(command string) bool { return strings.HasPrefix(command, "kubectl-") }

// commands returns the folders in cmd/ with a main.go.
func commands(root string) ([]string, error) {
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil || len(mains) == 0 {
		return nil, errors.Join(fmt.Errorf("listing cmd/*/main.go: %d found", len(mains)), err)
	}
	for i, file := range mains {
		mains[i] = filepath.Base(filepath.Dir(file))
	}
	return mains, nil
}

// binaries builds every command for every platform that it is for.
func (r *release) binaries(ctx context.Context) error {
	all, err := commands(r.root)
	if err != nil {
		return err
	}
	for _, command := range all {
		platforms := r.platforms
		if isPlugin(command) {
			platforms = slices.Concat(platforms, desks)
		}
		for _, p := range platforms {
			if err := r.binary(ctx, command, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// binary builds one, makes sure that it needs nothing else, and lists what it is made of.
func (r *release) binary(ctx context.Context, command string, p platform) error {
	file := filepath.Join(r.out, p.os, p.arch, binaryName(command))
	if p.os == "windows" {
		file += ".exe"
	}
	variables := []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch}
	if _, err := r.command(ctx, variables, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", r.ldflags, "-o",
		file, "./cmd/"+command); err != nil {
		return err
	}
	if p.os == "linux" {
		if err := checkStatic(file); err != nil {
			return err
		}
	}
	return r.sbom(ctx, file)
}

// checkStatic returns an error if a program asks for a loader or for libraries: in an image from scratch there are
// none.
func checkStatic(file string) error {
	program, err := elf.Open(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	defer func() { _ = program.Close() }()
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP || segment.Type == elf.PT_DYNAMIC {
			return fmt.Errorf("checking %s: it is linked dynamically (%s)", filepath.Base(file), segment.Type)
		}
	}
	return nil
}
