package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// bomSuffix is what the name of an SBOM has behind that of its binary.
const bomSuffix = ".cdx.json"

// sbom lists what a binary is made of, beside it.
func (r *release) sbom(ctx context.Context, binary string) error {
	file := binary + bomSuffix
	if _, err := r.command(ctx, nil, r.tool("cyclonedx-gomod"), "bin", "-json", "-noserial", "-notimestamp", "-std",
		"-version", r.version, "-output", file, binary); err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the SBOM: %w", err)
	}
	if data, err = withoutHashesOfTools(data); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("writing the SBOM: %w", err)
	}
	return nil
}

// withoutHashesOfTools leaves out the hashes of the program that wrote an SBOM: they depend on the machine that built
// it.
func withoutHashesOfTools(data []byte) ([]byte, error) {
	var bom map[string]any
	if err := json.Unmarshal(data, &bom); err != nil {
		return nil, err
	}
	metadata, ok := bom["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("it has no metadata")
	}
	tools, ok := metadata["tools"].([]any)
	if !ok {
		return nil, fmt.Errorf("its metadata names no tools")
	}
	for _, tool := range tools {
		if tool, ok := tool.(map[string]any); ok {
			delete(tool, "hashes")
		}
	}
	return json.MarshalIndent(bom, "", "  ")
}
