package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestConfigWithoutDeployment: a scheduler that no Deployment runs has its configuration in a ConfigMap, or the
// built-in one.
func TestConfigWithoutDeployment(t *testing.T) {
	config := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "lockstep-scheduler-config"}, Data: map[string]string{"config.yaml": "local"}}
	got, from, err := configOf(t.Context(), fake.NewClientset(config))
	if err != nil || string(got) != "local" || from != "ConfigMap kube-system/lockstep-scheduler-config" {
		t.Errorf("got %q from %q: %v", got, from, err)
	}
	if got, _, err := configOf(t.Context(), fake.NewClientset()); err != nil || got != nil {
		t.Errorf("of nothing it is %q: %v", got, err)
	}
}

// TestConfigOf: the configuration is the file that the Deployment's --config names.
func TestConfigOf(t *testing.T) {
	for sentence, c := range map[string]struct{ spec, want, fails string }{
		"in a folder": {
			spec: `{containers: [{name: s, args: ["--v=2", --config=/etc/lockstep/config.yaml], volumeMounts: [{name: c, mountPath: /etc/lockstep}]}], volumes: [{name: c, configMap: {name: config}}]}`,
			want: "usual"},
		"in another file, as an argument of its own, beside other ConfigMaps": {
			spec: `{containers: [{name: other}, {name: s, command: [scheduler, --config, /etc/x/mine.yaml], volumeMounts: [{name: d, mountPath: /etc/xy}, {name: c, mountPath: /etc/x/}]}],
				volumes: [{name: d, configMap: {name: none}}, {name: c, configMap: {name: config}}]}`,
			want: "mine"},
		"one file alone": {
			spec: `{containers: [{name: s, args: [--config=/c.yaml], volumeMounts: [{name: c, mountPath: /c.yaml, subPath: mine.yaml}]}], volumes: [{name: c, configMap: {name: config}}]}`,
			want: "mine"},
		"by another name": {
			spec: `{containers: [{name: s, args: [--config=/etc/c.yaml], volumeMounts: [{name: c, mountPath: /etc}]}], volumes: [{name: c, configMap: {name: config, items: [{key: mine.yaml, path: c.yaml}]}}]}`,
			want: "mine"},
		"none":                 {spec: `{containers: [{name: s, args: [--v=2]}]}`},
		"of the node":          {spec: `{containers: [{name: s, args: [--config=/etc/c.yaml], volumeMounts: [{name: c, mountPath: /etc}]}], volumes: [{name: c, hostPath: {path: /etc}}]}`, fails: `reading Deployment sys/scheduler: container "s" has --config /etc/c.yaml, which is in no ConfigMap`},
		"not in the ConfigMap": {spec: `{containers: [{name: s, args: [--config=/etc/d.yaml], volumeMounts: [{name: c, mountPath: /etc}]}], volumes: [{name: c, configMap: {name: config}}]}`, fails: `reading the scheduler's configuration: ConfigMap sys/config has no "d.yaml"`},
	} {
		t.Run(sentence, func(t *testing.T) {
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "scheduler", Labels: map[string]string{"app.kubernetes.io/name": "lockstep-scheduler"}}}
			must.Succeed(t, yaml.Unmarshal([]byte(c.spec), &deployment.Spec.Template.Spec))
			config := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "sys", Name: "config"}, Data: map[string]string{"config.yaml": "usual", "mine.yaml": "mine"}}
			got, _, err := configOf(t.Context(), fake.NewClientset(deployment, config))
			if (err == nil) != (c.fails == "") || err != nil && err.Error() != c.fails {
				t.Fatalf("error %v, want %q", err, c.fails)
			}
			if string(got) != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestDeviceClassesOf(t *testing.T) {
	for sentence, c := range map[string]struct {
		config string
		want   map[string]v1.ResourceName
	}{
		"no configuration": {},
		"none are named":   {config: "profiles: [{pluginConfig: [{name: FairShare, args: {}}]}, {}]"},
		"by FairShare":     {config: "profiles: [{pluginConfig: [{name: Gang, args: {deviceClasses: {a: example.com/x}}}]}, {pluginConfig: [{name: FairShare, args: {deviceClasses: {a: example.com/a}}}]}]", want: map[string]v1.ResourceName{"a": "example.com/a"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := DeviceClassesOf([]byte(c.config))
			must.Succeed(t, err)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("classes (-want +got):\n%s", diff)
			}
		})
	}
}
