package gangstatus

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// TestJobCountedItAsFailed: a Job counts a pod as failed as soon as it is being deleted, and takes its finalizer away.
func TestJobCountedItAsFailed(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "p", UID: "p", DeletionTimestamp: new(metav1.Now()),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: new(true)}},
	}, Status: v1.PodStatus{Phase: v1.PodSucceeded}}
	f := FactsOf(gangspec.Key{Namespace: "ns", Name: "g"}, &gangspec.PodGroupDescription{Min: 4}, []*v1.Pod{pod}, &gangstate.History{})
	if f.Succeeded != 0 {
		t.Errorf("%d succeeded, want none", f.Succeeded)
	}
}
