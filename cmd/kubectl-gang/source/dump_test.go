package source

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// TestListByName: a list that is narrowed by a name is a list.
func TestListByName(t *testing.T) {
	const path = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
	d := &Dump{Answers: map[string]json.RawMessage{path: json.RawMessage(`{"kind":"PodGroupList","items":[{"metadata":{"name":"g","namespace":"ns"}}]}`)}}
	for _, ask := range []string{path + "?fieldSelector=metadata.name%3Dg", "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups?fieldSelector=metadata.name%3Dg"} {
		response, err := d.Read(httptest.NewRequest(http.MethodGet, ask, nil))
		must.Succeed(t, err)
		var list struct{ Items []any }
		must.Succeed(t, json.NewDecoder(response.Body).Decode(&list))
		if len(list.Items) != 1 {
			t.Errorf("%s has %d items, want 1", ask, len(list.Items))
		}
	}
}
