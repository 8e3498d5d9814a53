package workloadfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestMatchLabelKeys: the API server writes what matchLabelKeys and mismatchLabelKeys mean into the selectors of pods
// as they are made, and the scheduler looks at nothing else: each Job in a rack of its own, as Kubernetes documents it.
func TestMatchLabelKeys(t *testing.T) {
	const manifest = `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {parallelism: 2, template: {metadata: {labels: {job: j}}, spec: {
		containers: [{name: main, image: none}], affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [
			{topologyKey: rack, labelSelector: {matchExpressions: [{key: job, operator: Exists}]}, mismatchLabelKeys: [job]}]}}}}}}`
	r := newReader()
	must.Succeed(t, readText(r, manifest))
	for _, pod := range r.Pods {
		term := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
		if !slices.ContainsFunc(term.LabelSelector.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
			return r.Key == "job" && r.Operator == metav1.LabelSelectorOpNotIn && slices.Equal(r.Values, []string{"j"})
		}) {
			t.Errorf("pod %s keeps pods away with %v, its own Job's too; want job notin (j) in it, as the API server has it", pod.Name, term.LabelSelector.MatchExpressions)
		}
	}
}

// TestMatchLabelKeysTwice: a key of matchLabelKeys that the selector has already is refused, as the API server refuses
// it.
func TestMatchLabelKeysTwice(t *testing.T) {
	const manifest = `{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {job: j}}, spec: {containers: [{name: main, image: none}], %s}}`
	const twice = `labelSelector: {matchLabels: {job: j}}, matchLabelKeys: [job]`
	for _, spec := range []string{
		`affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: rack, ` + twice + `}]}}`,
		`topologySpreadConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, ` + twice + `}]`,
	} {
		err := readText(newReader(), fmt.Sprintf(manifest, spec))
		if err == nil || !strings.Contains(err.Error(), "exists in both matchLabelKeys and labelSelector") {
			t.Errorf("%s: error %v, want that of the API server", spec, err)
		}
	}
}
