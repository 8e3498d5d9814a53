package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// chart packages the chart, with the version of the code.
func (r *release) chart(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "lockstep-chart-")
	if err != nil {
		return fmt.Errorf("making a folder for the chart: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	number := chartVersion(r.version)
	home := []string{"HELM_CACHE_HOME=" + dir, "HELM_CONFIG_HOME=" + dir, "HELM_DATA_HOME=" + dir}
	if _, err := r.command(ctx, home, r.tool("helm"), "package", filepath.Join("manifests", "chart"),
		"--version", number, "--app-version", r.version, "--destination", dir); err != nil {
		return err
	}
	name := "lockstep-" + number + ".tgz"
	packed, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("reading the chart: %w", err)
	}
	out, err := repack(packed)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, name), out, 0o644); err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	return nil
}

// notInVersions are the characters that a pre-release of a Semantic Version cannot have.
var notInVersions = regexp.MustCompile(`[^0-9A-Za-z-]+`)

// chartVersion returns the Semantic Version that Helm asks for: that of the code, or 0.0.0-g7f6e958 where it has none
// yet.
func chartVersion(code string) string {
	if v, err := version.ParseSemantic(strings.TrimPrefix(code, "v")); err == nil {
		return v.String()
	}
	return "0.0.0-g" + notInVersions.ReplaceAllString(code, "-")
}

// entry is a file in an archive.
type entry struct {
	name string
	data []byte
}

// repack returns the same archive, in order of names and without times, owners and so on: those depend on where it was
// packed.
func repack(packed []byte) ([]byte, error) {
	entries, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("unpacking the chart: %w", err)
	}
	// Chart.yaml first, as Helm has it: tools that look at no more need not read on.
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(-cmp.Compare(rank(a.name), rank(b.name)), cmp.Compare(a.name, b.name))
	})
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		if err := archive.WriteHeader(&tar.Header{Name: e.name, Mode: 0o644, Size: int64(len(e.data)),
			Format: tar.FormatUSTAR}); err != nil {
			return nil, fmt.Errorf("packing %s: %w", e.name, err)
		}
		if _, err := archive.Write(e.data); err != nil {
			return nil, fmt.Errorf("packing %s: %w", e.name, err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close()); err != nil {
		return nil, fmt.Errorf("packing the chart: %w", err)
	}
	return out.Bytes(), nil
}

// rank returns 1 for the file that comes first.
func rank(name string) int {
	if strings.HasSuffix(name, "/Chart.yaml") {
		return 1
	}
	return 0
}

// unpack reads the files of a .tgz.
func unpack(packed []byte) ([]entry, error) {
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var entries []entry
	archive := tar.NewReader(zip)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%s is no plain file", header.Name)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{header.Name, data})
	}
}
