package simulate

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	"sigs.k8s.io/yaml"

	schedulerapp "github.com/lockstep-sh/lockstep/cmd/scheduler/app"
)

// stockLease is the name of the lease of a configuration that names none.
const stockLease = "kube-scheduler"

// leaseOf returns the namespace/name of the lease that a configuration names, nil for the built-in one; empty where
// there is no leader election.
func leaseOf(config []byte) (string, error) {
	if config == nil {
		config = schedulerapp.DefaultConfig()
	}
	var read struct {
		LeaderElection componentbaseconfig.LeaderElectionConfiguration
	}
	if err := yaml.Unmarshal(config, &read); err != nil {
		return "", fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	election := read.LeaderElection
	if election.LeaderElect != nil && !*election.LeaderElect {
		return "", nil
	}
	return cmp.Or(election.ResourceNamespace, metav1.NamespaceSystem) + "/" +
		cmp.Or(election.ResourceName, stockLease), nil
}

// writeConfig writes a scheduler's configuration for a simulation into a directory, and returns its path; empty for the
// built-in one. It leaves out how to reach the API server, and leader election.
func writeConfig(dir string, config []byte) (string, error) {
	if config == nil {
		return "", nil
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(config, &fields); err != nil {
		return "", fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	delete(fields, "clientConnection")
	fields["leaderElection"] = map[string]any{"leaderElect": false}
	data, err := yaml.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	return file, nil
}
