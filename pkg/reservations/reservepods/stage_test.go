package reservepods

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const ns = "team-a"

// reservePod returns the only pod of a Reservation.
func reservePod(reservation string) *st.PodWrapper {
	name := PodName(reservation, 0)
	return st.MakePod().Namespace(ns).Name(name).UID(name).Label("app", "train").SchedulerName(v1.DefaultSchedulerName).Container("image").
		CreationTimestamp(metav1.NewTime(time.Unix(1700000000, 0))).
		Req(map[v1.ResourceName]string{v1.ResourceCPU: "1500m", v1.ResourceMemory: "1Gi"})
}

// storeOf returns a store with pods, which have the resourceVersions 1 and so on.
func storeOf(t testing.TB, pods ...*v1.Pod) *Store {
	t.Helper()
	s := NewStore()
	for _, pod := range pods {
		must.Succeed(t, s.Add(pod))
	}
	return s
}

func get(t testing.TB, s *Store, name string) *v1.Pod {
	t.Helper()
	pod, err := s.Get(ns, name)
	must.Succeed(t, err)
	return pod
}

func bindingOf(name, node string) *v1.Binding {
	return &v1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Target: v1.ObjectReference{Kind: "Node", Name: node}}
}

// conditionPatch returns a patch of the status as kube-scheduler's.
func conditionPatch(t testing.TB, message string) []byte {
	t.Helper()
	return encode(t, map[string]any{"status": map[string]any{"conditions": []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: message,
	}}}})
}

func encode(t testing.TB, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	must.Succeed(t, err)
	return data
}

const (
	strategic = types.StrategicMergePatchType
	merging   = types.MergePatchType
)
