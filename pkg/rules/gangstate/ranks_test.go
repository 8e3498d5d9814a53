package gangstate

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestRanks: members are in the order of the numbers that their controllers give them.
func TestRanks(t *testing.T) {
	const completion, replica = "batch.kubernetes.io/job-completion-index", v1alpha1.TrainingReplicaIndexLabel
	numbered := func(label, value, owner string, more ...string) func(*v1.Pod) {
		return func(pod *v1.Pod) {
			pod.Labels = map[string]string{label: value}
			for i := 0; i < len(more); i += 2 {
				pod.Labels[more[i]] = more[i+1]
			}
			if owner != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{Name: owner, Controller: new(true)}}
			}
		}
	}
	plain := func(*v1.Pod) {}
	for sentence, c := range map[string]struct {
		pods   map[string]func(*v1.Pod)
		order  string
		ranks  map[types.UID]int
		ranked bool
	}{
		"by name, with the numbers in it by value, where they have no index": {
			pods: map[string]func(*v1.Pod){"train-10": plain, "train-9": plain, "train-2": plain}, order: "train-2 train-9 train-10",
			ranks: map[types.UID]int{"train-2": 0, "train-9": 1, "train-10": 2},
		},
		"by the index of the Job, whatever they are called": {
			pods:  map[string]func(*v1.Pod){"a": numbered(completion, "10", "j"), "b": numbered(completion, "9", "j"), "c": numbered(completion, "0", "j")},
			order: "c b a", ranks: map[types.UID]int{"c": 0, "b": 9, "a": 10}, ranked: true,
		},
		"one Job of a JobSet after the other": {
			pods: map[string]func(*v1.Pod){
				"a": numbered(completion, "0", "set-10"), "b": numbered(completion, "1", "set-2"), "c": numbered(completion, "0", "set-2"), "d": numbered(completion, "1", "set-10"),
			},
			order: "c b a d", ranks: map[types.UID]int{"c": 0, "b": 1, "a": 2, "d": 3}, ranked: true,
		},
		"the master of a PyTorchJob before its workers": {
			pods: map[string]func(*v1.Pod){
				"w-0": numbered(replica, "0", "j", v1alpha1.TrainingReplicaTypeLabel, "worker"),
				"m-0": numbered(replica, "0", "j", v1alpha1.TrainingReplicaTypeLabel, "master"),
				"w-1": numbered(replica, "1", "j", v1alpha1.TrainingReplicaTypeLabel, "worker"),
			},
			order: "m-0 w-0 w-1", ranks: map[types.UID]int{"m-0": 0, "w-0": 1, "w-1": 2}, ranked: true,
		},
		"the indexes of a LeaderWorkerSet are those of the group, leader and all": {
			pods:  map[string]func(*v1.Pod){"l": numbered(v1alpha1.LeaderWorkerIndexLabel, "0", ""), "l-2": numbered(v1alpha1.LeaderWorkerIndexLabel, "2", "l"), "l-1": numbered(v1alpha1.LeaderWorkerIndexLabel, "1", "l")},
			order: "l l-1 l-2", ranks: map[types.UID]int{"l": 0, "l-1": 1, "l-2": 2}, ranked: true,
		},
		"Koordinator's index wins": {
			pods: map[string]func(*v1.Pod){
				"a": func(pod *v1.Pod) {
					numbered(completion, "0", "j")(pod)
					pod.Annotations = map[string]string{v1alpha1.NetworkTopologyIndexAnnotation: "1"}
				},
				"b": func(pod *v1.Pod) { pod.Annotations = map[string]string{v1alpha1.NetworkTopologyIndexAnnotation: "0"} },
			},
			order: "b a", ranks: map[types.UID]int{"b": 0, "a": 1}, ranked: true,
		},
		"those without an index lead, and are laid out after the others": {
			pods:  map[string]func(*v1.Pod){"launcher": plain, "w-0": numbered(replica, "0", "j"), "w-1": numbered(replica, "1", "j")},
			order: "launcher w-0 w-1", ranks: map[types.UID]int{"w-0": 0, "w-1": 1, "launcher": 2}, ranked: true,
		},
		"those that may not be placed yet are laid out after the others": {
			pods: map[string]func(*v1.Pod){
				"a": func(pod *v1.Pod) { pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "gate"}} }, "b": plain, "c": plain,
			},
			order: "a b c", ranks: map[types.UID]int{"b": 0, "c": 1, "a": 2},
		},
		"a number that two have goes to one of them, and a number that is none to nobody": {
			pods:  map[string]func(*v1.Pod){"a": numbered(completion, "0", "j"), "b": numbered(completion, "0", "j"), "c": numbered(completion, "-1", "j"), "d": numbered(completion, "99999999999", "j")},
			order: "c d a b", ranks: map[types.UID]int{"a": 0, "b": 1, "c": 2, "d": 3}, ranked: true,
		},
		"a member that is missing leaves its number": {
			pods:  map[string]func(*v1.Pod){"a": numbered(completion, "0", "j"), "c": numbered(completion, "2", "j")},
			order: "a c", ranks: map[types.UID]int{"a": 0, "c": 2}, ranked: true,
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var members []*member
			for name, change := range c.pods {
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
				change(pod)
				members = append(members, newMember(pod))
			}
			slices.SortFunc(members, compareMembers)
			numbers := numbering{}
			var order []string
			for _, m := range members {
				order = append(order, m.pod.Name)
				numbers.add(m.index)
			}
			if got := strings.Join(order, " "); got != c.order {
				t.Errorf("order: %s, want %s", got, c.order)
			}
			got, ranked := ranks(members, numbers)
			if diff := cmp.Diff(c.ranks, got); diff != "" || ranked != c.ranked {
				t.Errorf("ranked %v, want %v; ranks (-want +got):\n%s", ranked, c.ranked, diff)
			}
		})
	}
}

// TestRanksOutliveMembers: a replacement has the number of the member that was lost, whichever others are still
// missing. It is as with a PyTorchJob: the numbers of the workers follow that of the master, even while there is none.
func TestRanksOutliveMembers(t *testing.T) {
	s := newOpen(gangspec.Defaults{}, Backoff{})
	see := func(kind, n, uid string) {
		s.ObservePod(podOf(kind+"-"+n, of("train"), func(pod *v1.Pod) {
			pod.UID = types.UID(uid)
			pod.Labels = map[string]string{v1alpha1.TrainingReplicaIndexLabel: n, v1alpha1.TrainingReplicaTypeLabel: kind}
		}), start)
	}
	want := func(when string, ranks map[types.UID]int) {
		t.Helper()
		got, _ := s.gangs[gangspec.Key{Namespace: "a", Name: "train"}].ranks()
		if diff := cmp.Diff(ranks, got); diff != "" {
			t.Errorf("ranks %s (-want +got):\n%s", when, diff)
		}
	}
	see("worker", "1", "w1")
	see("worker", "0", "w0")
	see("master", "0", "m0")
	want("of all", map[types.UID]int{"m0": 0, "w0": 1, "w1": 2})
	s.PodEnded("m0", start)
	s.PodEnded("w0", start)
	see("worker", "0", "w0 again")
	want("without the master", map[types.UID]int{"w0 again": 1, "w1": 2})
	see("master", "0", "m0 again")
	want("of all again", map[types.UID]int{"m0 again": 0, "w0 again": 1, "w1": 2})
	s.PodEnded("m0 again", start)
	see("evaluator", "0", "e0")
	want("with another kind instead", map[types.UID]int{"e0": 0, "w0 again": 1, "w1": 2})
	for _, uid := range []types.UID{"e0", "w0 again", "w1"} {
		s.PodEnded(uid, start)
	}
	see("worker", "0", "w0 of another run")
	want("of another run", map[types.UID]int{"w0 of another run": 0})
}
