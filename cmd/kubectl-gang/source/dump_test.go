package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestSpare: a dump has nothing of what containers run, also in templates, and all that a scheduler looks at.
func TestSpare(t *testing.T) {
	const container = `{"name": "main", "env": [{"value": "secret"}], "envFrom": [{"secretRef": {}}], "args": ["secret"], "command": ["secret"],
		"lifecycle": {"preStop": {"exec": {"command": ["secret"]}}}, "livenessProbe": {"httpGet": {"httpHeaders": [{"value": "secret"}]}},
		"readinessProbe": {"exec": {"command": ["secret"]}}, "startupProbe": {"exec": {"command": ["secret"]}}, "ports": [{"hostPort": 1}], "resources": {"requests": {"cpu": "1"}}}`
	for kind, body := range map[string]string{
		"pods":        `{"items": [{"spec": {"containers": [%s], "initContainers": [%[1]s], "ephemeralContainers": [%[1]s]}}]}`,
		"replicasets": `{"items": [{"spec": {"template": {"spec": {"containers": [%s], "initContainers": [%[1]s]}}}}]}`,
		"any kind":    `{"items": [{"spec": {"parts": [{"template": {"spec": {"containers": [%s]}}}]}}]}`,
	} {
		got, err := redact([]byte(fmt.Sprintf(body, container)))
		must.Succeed(t, err)
		if strings.Contains(string(got), "secret") {
			t.Errorf("%s: %s", kind, got)
		}
		for _, want := range []string{`"hostPort":1`, `"cpu":"1"`} {
			if !strings.Contains(string(got), want) {
				t.Errorf("%s lack %s: %s", kind, want, got)
			}
		}
	}
}
