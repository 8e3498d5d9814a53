package whatif

import (
	"fmt"
	"math/rand/v2"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// local returns volumes that wait for a claim: two on n0, one each on n1 and n2; and claims that wait for them.
func local() []runtime.Object {
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	once := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	objects := []runtime.Object{&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	}}
	for i, node := range []string{"n0", "n0", "n1", "n2"} {
		objects = append(objects, &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("local-", i), ResourceVersion: "1"},
			Spec: v1.PersistentVolumeSpec{
				StorageClassName: "local", AccessModes: once, Capacity: size,
				PersistentVolumeSource: v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/disk"}},
				NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
					MatchExpressions: []v1.NodeSelectorRequirement{{Key: host, Operator: v1.NodeSelectorOpIn, Values: []string{node}}},
				}}}},
			},
			Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
		})
	}
	for i := range waiting {
		objects = append(objects, &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("local-", i), UID: types.UID(fmt.Sprint("claim-", i)), ResourceVersion: "1"},
			Spec: v1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To("local"), AccessModes: once, Resources: v1.VolumeResourceRequirements{Requests: size},
			},
		})
	}
	return objects
}

// waiting is how many pods have a claim that waits.
const waiting = 6

func waitingPod(i int) *v1.Pod {
	name := fmt.Sprint("local-", i)
	return st.MakePod().Namespace("ns").Name(name).UID(name).PVC(name).Req(amounts{v1.ResourceCPU: "1"}).Obj()
}

// beginOnVolumes does what begin does, with the volumes of the profile, and all waiting pods contending.
func (s *stage) beginOnVolumes(t *testing.T, interdependent bool) (*Transaction, map[string]int) {
	t.Helper()
	tx, at := s.begin(t, interdependent)
	if tx.hooks.volumes = volumesOf(s.fw); tx.hooks.volumes == nil {
		t.Fatal("the profile has no VolumeBinding")
	}
	for i := range waiting {
		tx.MarkContending(waitingPod(i).UID)
	}
	return tx, at
}

// fitsFor returns where a pod fits by the view of another.
func fitsFor(t *testing.T, tx *Transaction, v *View, p *v1.Pod) []string {
	t.Helper()
	own, status := tx.ViewFor(t.Context(), v, p)
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	return fits(t, tx, own)
}

func add(t *testing.T, tx *Transaction, p *v1.Pod, node int) {
	t.Helper()
	must.Succeed(t, tx.Add(t.Context(), idle.PodInfo(t, p), node))
}

// TestVolumesAreTakenOnce: what one pod would be bound to is not there for the next, until it is taken back.
func TestVolumesAreTakenOnce(t *testing.T) {
	for _, interdependent := range []bool{false, true} {
		t.Run(fmt.Sprint("interdependent ", interdependent), func(t *testing.T) {
			s := newStage(t, local()...)
			s.set()
			tx, at := s.beginOnVolumes(t, interdependent)
			v := view(t, tx, waitingPod(0))
			where := func(step string, p int, want ...string) {
				t.Helper()
				if diff := gocmp.Diff(want, fitsFor(t, tx, v, waitingPod(p))); diff != "" {
					t.Errorf("%s, pod %d fits (-want +got):\n%s", step, p, diff)
				}
			}
			where("at first", 0, "n0", "n1", "n2")
			add(t, tx, waitingPod(0), at["n0"])
			where("with one on n0", 1, "n0", "n1", "n2")
			add(t, tx, waitingPod(1), at["n0"])
			mark := tx.Checkpoint()
			where("with two on n0", 2, "n1", "n2")
			add(t, tx, waitingPod(2), at["n1"])
			add(t, tx, waitingPod(3), at["n2"])
			where("with all taken", 4)
			must.Succeed(t, tx.Rollback(t.Context(), mark))
			where("with two taken back", 4, "n1", "n2")
			must.Succeed(t, tx.Discard(t.Context()))
			tx, _ = s.beginOnVolumes(t, interdependent)
			where("in another transaction", 5, "n0", "n1", "n2")
		})
	}
}

// TestVolumesAreGivenBack adds pods and goes back at random, and gives up one way or another: each volume is
// there as before.
func TestVolumesAreGivenBack(t *testing.T) {
	s := newStage(t, local()...)
	s.set()
	names := map[string]int{"n0": 2, "n1": 1, "n2": 1}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		interdependent := seed%2 == 0
		tx, at := s.beginOnVolumes(t, interdependent)
		var marks []Mark
		for i := range waiting {
			if marks = append(marks, tx.Checkpoint()); rng.IntN(3) == 0 {
				must.Succeed(t, tx.Rollback(t.Context(), marks[rng.IntN(len(marks))]))
			}
			add(t, tx, waitingPod(i), at[fmt.Sprint("n", rng.IntN(4))])
		}
		var err error
		if rng.IntN(2) == 0 {
			err = tx.Discard(t.Context())
		} else {
			_, err = tx.commit(t.Context())
		}
		must.Succeed(t, err)
		tx, at = s.beginOnVolumes(t, interdependent)
		v, got := view(t, tx, waitingPod(0)), map[string]int{}
		for i := range waiting {
			if on := fitsFor(t, tx, v, waitingPod(i)); len(on) > 0 {
				got[on[0]]++
				add(t, tx, waitingPod(i), at[on[0]])
			}
		}
		if diff := gocmp.Diff(names, got); diff != "" {
			t.Errorf("seed %d: volumes by node (-want +got):\n%s", seed, diff)
		}
		must.Succeed(t, tx.Discard(t.Context()))
	}
}

// TestVolumesOfOthersAreLeftAlone: pods that do not contend take none.
func TestVolumesOfOthersAreLeftAlone(t *testing.T) {
	s := newStage(t, local()...)
	s.set()
	tx, at := s.begin(t, false)
	tx.hooks.volumes = volumesOf(s.fw)
	add(t, tx, waitingPod(0), at["n1"])
	tx.MarkContending(waitingPod(1).UID)
	if diff := gocmp.Diff([]string{"n0", "n1", "n2"}, fitsFor(t, tx, view(t, tx, waitingPod(1)), waitingPod(1))); diff != "" {
		t.Errorf("fits (-want +got):\n%s", diff)
	}
}
