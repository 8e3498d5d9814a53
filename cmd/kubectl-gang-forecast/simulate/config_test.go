package simulate

import "testing"

func TestLeaseOf(t *testing.T) {
	for config, want := range map[string]string{
		"":                                     "kube-system/lockstep-scheduler",
		"leaderElection: {leaderElect: false}": "",
		"leaderElection: {leaderElect: true}":  "kube-system/kube-scheduler",
		"leaderElection: {resourceName: x, resourceNamespace: team}": "team/x",
	} {
		text := []byte(config)
		if config == "" {
			text = nil
		}
		if got, err := leaseOf(text); err != nil || got != want {
			t.Errorf("of %q it is %q, want %q: %v", config, got, want, err)
		}
	}
}
