package migration

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// TestSuccessorOf: a successor is a pod that may use the target, came when the pod had gone, and has a node. It is not
// known while another one that may use the target waits for a node.
func TestSuccessorOf(t *testing.T) {
	index := "batch.kubernetes.io/job-completion-index"
	pod := func(name, controller, rank, node string, age time.Duration) v1.Pod {
		p := v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: "uid-other", CreationTimestamp: metav1.NewTime(begin.Add(-age)),
		}, Spec: v1.PodSpec{NodeName: node}}
		if controller != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: controller, Controller: new(true)}}
		}
		if rank != "" {
			p.Labels = map[string]string{index: rank}
		}
		return p
	}
	ending := pod("p-2", "j", "1", "else", 0)
	ending.DeletionTimestamp = new(metav1.NewTime(begin))
	itself := pod("p", "j", "1", "from", 0)
	itself.UID = "uid-p"
	ranked, alike, bare := pod("p", "j", "1", "from", 0), pod("p", "j", "", "from", 0), pod("p", "", "", "from", 0)
	for sentence, c := range map[string]struct {
		moved v1.Pod
		pods  []v1.Pod
		want  string // its node; empty for none
	}{
		"nothing has come":                        {ranked, nil, ""},
		"it waits":                                {ranked, []v1.Pod{pod("p-2", "j", "1", "", 0)}, ""},
		"it has a node":                           {ranked, []v1.Pod{pod("p-2", "j", "1", "else", 0)}, "else"},
		"that of another rank is no successor":    {ranked, []v1.Pod{pod("p-2", "j", "2", "else", 0)}, ""},
		"nor that of another controller":          {ranked, []v1.Pod{pod("p-2", "k", "1", "else", 0)}, ""},
		"nor one that ends":                       {ranked, []v1.Pod{ending}, ""},
		"nor the pod itself":                      {ranked, []v1.Pod{itself}, ""},
		"of pods that are alike a new one":        {alike, []v1.Pod{pod("p-2", "j", "", "else", 0)}, "else"},
		"not one that was there before":           {alike, []v1.Pod{pod("p-2", "j", "", "else", time.Minute)}, ""},
		"nor while one is left that was":          {alike, []v1.Pod{pod("p-2", "j", "", "else", 0), pod("p-3", "j", "", "other", time.Minute)}, ""},
		"of several the one on the target":        {alike, []v1.Pod{pod("p-2", "j", "", "to", 0), pod("p-3", "j", "", "else", 0)}, "to"},
		"while another one waits, it may be that": {alike, []v1.Pod{pod("p-2", "j", "", "else", 0), pod("p-3", "j", "", "", 0)}, ""},
		"without a controller by its name":        {bare, []v1.Pod{pod("p", "", "", "else", 0)}, "else"},
		"and not by another name":                 {bare, []v1.Pod{pod("p-2", "", "", "else", 0)}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			m := aMigration(condition(v1alpha1.MigrationEvicted, metav1.ConditionTrue, v1alpha1.MigrationReasonEvicted, begin))
			m.Status.Successors = Successors(&c.moved)
			node := ""
			if found := SuccessorOf(m, c.pods); found != nil {
				node = found.Node
			}
			if node != c.want {
				t.Errorf("on node %q, want %q", node, c.want)
			}
		})
	}
}

// TestSuccessorBeforeItWent: nothing is a successor before the pod is known to be gone.
func TestSuccessorBeforeItWent(t *testing.T) {
	m := aMigration(condition(v1alpha1.MigrationEvicted, metav1.ConditionUnknown, v1alpha1.MigrationReasonDisruptionBudget, begin))
	next := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-other", CreationTimestamp: metav1.NewTime(begin)}, Spec: v1.PodSpec{NodeName: "else"}}
	if found := SuccessorOf(m, []v1.Pod{next}); found != nil {
		t.Errorf("found %+v", found)
	}
}
