// Command release makes in dist/ what a release consists of: binaries for each platform with their SBOMs and licences,
// the Dockerfile of the images, whose context dist is, the chart, install.yaml, and SHA256SUMS of all of it. What it
// makes of one commit is the same each time, byte by byte: no times, no paths of the machine. Run it by make release.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// outDir is where everything goes. What was there is removed.
const outDir = "dist"

// release says what to make.
type release struct {
	root, out string
	version   string // of the code, such as v0.1.0 or 7f6e958
	ldflags   string
	registry  string // put before the names of images in install.yaml; may be empty
	platforms []platform
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	r := &release{}
	platforms := flag.String("platforms", "linux/amd64,linux/arm64",
		"For which platforms the programs are built that run in the cluster.")
	flag.StringVar(&r.version, "version", "", "The version of the code, which is the tag of the images.")
	flag.StringVar(&r.ldflags, "ldflags", "", "The flags of the linker, which stamp the version.")
	flag.StringVar(&r.registry, "registry", "", "What stands before the names of the images in install.yaml.")
	flag.Parse()
	if r.version == "" {
		return fmt.Errorf("checking -version: it is empty")
	}
	var err error
	if r.platforms, err = parsePlatforms(*platforms); err != nil {
		return err
	}
	if r.root, err = localcluster.Root(); err != nil {
		return err
	}
	r.out = filepath.Join(r.root, outDir)
	if err := localcluster.BuildTools(ctx, os.Stderr, "kubectl", "helm", "cyclonedx-gomod"); err != nil {
		return err
	}
	return r.make(ctx)
}

// make makes one part after the other, and prints how long each took.
func (r *release) make(ctx context.Context) error {
	if err := os.RemoveAll(r.out); err != nil {
		return fmt.Errorf("removing the last release: %w", err)
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", outDir, err)
	}
	for _, part := range []struct {
		name string
		make func(context.Context) error
	}{
		{"binaries and their SBOMs", r.binaries},
		{"LICENSES", r.licenses},
		{"Dockerfile", r.dockerfile},
		{"chart", r.chart},
		{"install.yaml", r.install},
		{"SHA256SUMS", func(context.Context) error { return writeSums(r.out) }},
	} {
		start := time.Now()
		if err := part.make(ctx); err != nil {
			return err
		}
		fmt.Printf("%-26s %s\n", part.name, time.Since(start).Round(time.Second))
	}
	fmt.Printf("all in %s\n", r.out)
	return nil
}

// dockerfile puts the Dockerfile where its context is.
func (r *release) dockerfile(context.Context) error {
	data, err := os.ReadFile(filepath.Join(r.root, "hack", "release", "Dockerfile"))
	if err != nil {
		return fmt.Errorf("reading the Dockerfile: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.out, "Dockerfile"), data, 0o644); err != nil {
		return fmt.Errorf("writing the Dockerfile: %w", err)
	}
	return nil
}

// tool returns the path of one of the tools.
func (r *release) tool(name string) string { return filepath.Join(r.root, ".local", "bin", name) }

// command runs a command at the top of the repository, with more variables, and returns what it prints.
func (r *release) command(ctx context.Context, variables []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = r.root, append(os.Environ(), variables...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running %s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}
