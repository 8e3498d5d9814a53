package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// install writes install.yaml: the CRDs, manifests/keys, and manifests/base with the images of this release.
func (r *release) install(ctx context.Context) error {
	crds, err := filepath.Glob(filepath.Join(r.root, "manifests", "crds", "*.yaml"))
	if err != nil || len(crds) == 0 {
		return errors.Join(fmt.Errorf("listing the CRDs: %d found", len(crds)), err)
	}
	var out bytes.Buffer
	for _, file := range crds {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a CRD: %w", err)
		}
		out.Write(data)
	}
	overlay, err := r.overlay()
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(overlay) }()
	base, err := r.command(ctx, nil, r.tool("kubectl"), "kustomize", overlay)
	if err != nil {
		return err
	}
	out.WriteString("---\n")
	out.Write(base)
	if err := os.WriteFile(filepath.Join(r.out, "install.yaml"), out.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing install.yaml: %w", err)
	}
	return nil
}

// overlay makes one of manifests/base and manifests/keys, as users do, and returns its folder.
func (r *release) overlay() (string, error) {
	dir, err := os.MkdirTemp(r.out, "overlay-")
	if err != nil {
		return "", fmt.Errorf("making an overlay: %w", err)
	}
	manifests, err := filepath.Rel(dir, filepath.Join(r.root, "manifests"))
	if err != nil {
		return "", fmt.Errorf("making an overlay: %w", err)
	}
	var images []map[string]string
	for _, name := range []string{"lockstep-scheduler", "lockstep-controller"} {
		images = append(images, map[string]string{"name": name, "newName": path.Join(r.registry, name), "newTag": r.version})
	}
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "images": images,
		"resources": []string{filepath.Join(manifests, "base"), filepath.Join(manifests, "keys")},
	})
	if err != nil {
		return "", fmt.Errorf("making an overlay: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), data, 0o644); err != nil {
		return "", fmt.Errorf("making an overlay: %w", err)
	}
	return dir, nil
}

// sumsFile has a line for every other file, as sha256sum --check reads them.
const sumsFile = "SHA256SUMS"

// writeSums writes that file, for all files in a folder, in order of their paths.
func writeSums(dir string) error {
	var lines bytes.Buffer
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(data), filepath.ToSlash(name))
		return nil
	})
	if err != nil {
		return fmt.Errorf("reckoning checksums: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, sumsFile), lines.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing %s: %w", sumsFile, err)
	}
	return nil
}
