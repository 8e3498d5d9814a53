package owners

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

func podOf(namespace, name string, change func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name)}}
	if change != nil {
		change(pod)
	}
	return pod
}

func madeBy(apiVersion, kind, name, uid string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: ptr.To(true)}}
	}
}

func TestMatches(t *testing.T) {
	job := Controller{Group: "batch", Kind: "Job", Namespace: "team-a", Name: "train"}
	very := job
	very.UID = "1"
	app := labels.SelectorFromSet(labels.Set{"app": "train"})
	labelled := func(pod *v1.Pod) { pod.Labels = map[string]string{"app": "train"} }
	inGang := func(pod *v1.Pod) { pod.Annotations = map[string]string{v1alpha1.GangNameAnnotation: "train"} }
	for sentence, c := range map[string]struct {
		owner Owner
		pod   *v1.Pod
		want  bool
	}{
		"nobody in particular is nobody":                 {Owner{}, podOf("team-a", "p", nil), false},
		"a pod":                                          {Owner{Pod: "team-a-p"}, podOf("team-a", "p", nil), true},
		"another pod of its name":                        {Owner{Pod: "before"}, podOf("team-a", "p", nil), false},
		"whichever pod has a name":                       {Owner{Named: types.NamespacedName{Namespace: "team-a", Name: "p"}}, podOf("team-a", "p", nil), true},
		"one that has another":                           {Owner{Named: types.NamespacedName{Namespace: "team-a", Name: "p"}}, podOf("team-a", "q", nil), false},
		"or is in another namespace":                     {Owner{Named: types.NamespacedName{Namespace: "team-a", Name: "p"}}, podOf("team-b", "p", nil), false},
		"a Job":                                          {Owner{Controller: &very}, podOf("team-a", "p", madeBy("batch/v1", "Job", "train", "1")), true},
		"that is made again is another one":              {Owner{Controller: &very}, podOf("team-a", "p", madeBy("batch/v1", "Job", "train", "2")), false},
		"unless its name is all that is asked for":       {Owner{Controller: &job}, podOf("team-a", "p", madeBy("batch/v1", "Job", "train", "2")), true},
		"one of its name in another namespace":           {Owner{Controller: &job}, podOf("team-b", "p", madeBy("batch/v1", "Job", "train", "1")), false},
		"something else of its name":                     {Owner{Controller: &job}, podOf("team-a", "p", madeBy("example.com/v1", "Job", "train", "1")), false},
		"a pod that nobody made":                         {Owner{Controller: &job}, podOf("team-a", "p", nil), false},
		"labels":                                         {Owner{Selector: app, Namespace: "team-a"}, podOf("team-a", "p", labelled), true},
		"labels in another namespace":                    {Owner{Selector: app, Namespace: "team-a"}, podOf("team-b", "p", labelled), false},
		"a gang":                                         {Owner{Gang: &gangspec.Key{Namespace: "team-a", Name: "train"}}, podOf("team-a", "p", inGang), true},
		"a gang of its name in another namespace":        {Owner{Gang: &gangspec.Key{Namespace: "team-a", Name: "train"}}, podOf("team-b", "p", inGang), false},
		"a gang and labels, of which one does not match": {Owner{Gang: &gangspec.Key{Namespace: "team-a", Name: "train"}, Selector: app, Namespace: "team-a"}, podOf("team-a", "p", inGang), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := c.owner.matches(c.pod); got != c.want {
				t.Errorf("it matches: %t", got)
			}
			var x Index
			x.Set("entry", c.owner)
			if found := len(x.Of(c.pod)) == 1; found != c.want {
				t.Errorf("it is found: %t", found)
			}
		})
	}
}

// TestIndex: whatever is set and removed, Of returns the same as a look at all entries.
func TestIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	name := func(n int) string { return fmt.Sprint(r.IntN(n)) }
	owner := func() Owner {
		o := Owner{Namespace: name(2)}
		if r.IntN(4) == 0 {
			o.Pod = types.UID(name(2) + "-" + name(6))
		}
		if r.IntN(3) == 0 {
			o.Controller = &Controller{Group: "batch", Kind: "Job", Namespace: name(2), Name: name(3)}
			if r.IntN(2) == 0 {
				o.Controller.UID = types.UID(name(3))
			}
		}
		if r.IntN(3) == 0 {
			text := []string{"app=%s", "app in (%s,7)", "app in (0,1)", "app", "app!=%s", "tier=1,app=%s", "!tier,app!=%s"}[r.IntN(7)]
			if strings.Contains(text, "%s") {
				text = fmt.Sprintf(text, name(3))
			}
			selector, err := labels.Parse(text)
			must.Succeed(t, err)
			o.Selector = selector
		}
		if r.IntN(3) == 0 {
			o.Gang = &gangspec.Key{Namespace: name(2), Name: name(3)}
		}
		return o
	}
	var x Index
	all, hits := map[string][]Owner{}, 0
	for range 20000 {
		entry := strconv.Itoa(r.IntN(12))
		delete(all, entry)
		for range r.IntN(3) {
			all[entry] = append(all[entry], owner())
		}
		x.Set(entry, all[entry]...)
		pod := podOf(name(2), name(6), madeBy("batch/v1", "Job", name(3), name(3)))
		pod.Labels = map[string]string{"app": name(3)}
		if r.IntN(2) == 0 {
			pod.Labels["tier"] = name(2)
		}
		pod.Annotations = map[string]string{v1alpha1.GangNameAnnotation: name(3)}
		var want []string
		for entry, owners := range all {
			if slices.ContainsFunc(owners, func(o Owner) bool { return o.matches(pod) }) {
				want = append(want, entry)
			}
		}
		slices.Sort(want)
		hits += len(want)
		if diff := cmp.Diff(want, x.Of(pod)); diff != "" {
			t.Fatalf("found (-want +got):\n%s", diff)
		}
		if len(x.entries) != len(all) {
			t.Fatalf("%d entries, want %d", len(x.entries), len(all))
		}
	}
	if hits < 1000 {
		t.Errorf("only %d pods had an owner", hits)
	}
	for entry := range 12 {
		x.Set(strconv.Itoa(entry))
	}
	if len(x.byKey)+len(x.entries) != 0 {
		t.Errorf("%d keys and %d entries are left behind", len(x.byKey), len(x.entries))
	}
}
