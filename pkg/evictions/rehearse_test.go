package evictions

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestKinds: pods of one origin that differ in nothing but what numbers them are of one kind.
func TestKinds(t *testing.T) {
	of := func(controller string, pods []*v1.Pod) []*v1.Pod {
		for _, pod := range pods {
			pod.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(controller), Controller: new(true)}}
		}
		return pods
	}
	labelled := func(key string, values []string, pods []*v1.Pod) []*v1.Pod {
		for i, pod := range pods {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels[key] = values[i]
		}
		return pods
	}
	annotated := func(key, value string, pods []*v1.Pod) []*v1.Pod {
		for _, pod := range pods {
			pod.Annotations[key] = value
		}
		return pods
	}
	elsewhere := members("v", 1, 2, "n0")
	elsewhere[0].Namespace = "other"
	single := members("v", 1, 0, "n0")
	single[0].Namespace = "other"
	index := []string{"0", "1", "2", "3"}
	gang := func(n int) []*v1.Pod { return members("v", n, 2, "n0") }
	roles := []string{"head", "hand", "hand", "hand"}
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"members of one gang":                 {gang(3), "v-0 v-1 v-2"},
		"members of two gangs":                {append(gang(2), members("w", 2, 2, "n0")...), "v-0 v-1 | w-0 w-1"},
		"gangs of one name in two namespaces": {append(gang(1), elsewhere...), "v-0 | v-0"},
		"members of two controllers":          {append(of("a", gang(2)), of("b", gang(4)[2:])...), "v-0 v-1 | v-2 v-3"},
		"pods of one controller in no gang":   {of("a", members("v", 3, 0, "n0")), "v-0 v-1 v-2"},
		"single pods of a namespace":          {members("v", 2, 0, "n0"), "v-0 v-1"},
		"single pods that differ in a label":  {labelled("role", roles, members("v", 3, 0, "n0")), "v-0 | v-1 v-2"},
		"single pods of two namespaces":       {append(members("v", 1, 0, "n0"), single...), "v-0 | v-0"},
		"members with an index":               {labelled("index", index, gang(4)), "v-0 v-1 v-2 v-3"},
		"members with roles":                  {labelled("role", roles, gang(3)), "v-0 | v-1 v-2"},
		"three members with three roles":      {labelled("role", []string{"head", "hand", "foot"}, gang(3)), "v-0 | v-1 | v-2"},
		"members with their names":            {labelled("pod", []string{"v-0", "v-1", "v-2"}, gang(3)), "v-0 v-1 v-2"},
		"members with a role and an index":    {labelled("role", roles, labelled("index", index, gang(4))), "v-0 | v-1 v-2 v-3"},
		"two members that differ in a label":  {labelled("role", index, gang(2)), "v-0 | v-1"},
		"one that has a label more":           {append(labelled("keep", index, gang(1)), gang(3)[1:]...), "v-0 | v-1 v-2"},
		"one whose annotation differs":        {append(annotated("keep", "yes", gang(1)), annotated("keep", "no", gang(3)[1:])...), "v-0 | v-1 v-2"},
		"members with addresses": {
			slices.Concat(annotated("ip", "1", gang(1)), annotated("ip", "2", gang(2)[1:]), annotated("ip", "3", gang(3)[2:])), "v-0 v-1 v-2",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var kinds []string
			for _, kind := range kindsOf(known{}, c.pods) {
				var names []string
				for _, pod := range kind {
					names = append(names, pod.Name)
				}
				kinds = append(kinds, strings.Join(names, " "))
			}
			if got := strings.Join(kinds, " | "); got != c.want {
				t.Errorf("kinds %q, want %q", got, c.want)
			}
		})
	}
}

// TestRehearseAll: which pods the API server is asked about, and which are left alone then.
func TestRehearseAll(t *testing.T) {
	for sentence, c := range map[string]struct {
		refuses    string // pods whose name begins so
		unexpected time.Duration
		gone       string // a pod that no longer exists
		onItsWay   string // a pod that is not on a node
		asked      string
		fails      int
		refused    int
	}{
		"one of each kind": {asked: "v-0 w-0"},
		"the others of a kind, too, where one is refused":    {refuses: "v-", asked: "v-0 v-1 v-2 w-0", fails: 3, refused: 3},
		"each that is refused is left alone, and no other":   {refuses: "v-0", asked: "v-0 v-1 v-2 w-0", fails: 1, refused: 1},
		"all, after a refusal that had not been foretold":    {refuses: "v-1", unexpected: time.Minute, asked: "v-0 v-1 v-2 w-0 w-1", fails: 1, refused: 1},
		"one of each kind again, long after such a surprise": {unexpected: 2 * time.Hour, asked: "v-0 w-0"},
		"who no longer exists does not speak for the others": {gone: "v-0", refuses: "v-", asked: "v-0 v-1 v-1 v-2 w-0", fails: 3, refused: 2},
		"nor does who is not on a node":                      {onItsWay: "v-0", asked: "v-1 w-0"},
	} {
		t.Run(sentence, func(t *testing.T) {
			pods := slices.Concat(members("v", 3, 3, "n0"), members("w", 2, 2, "n0"))
			for _, pod := range pods {
				if pod.Name == c.onItsWay {
					pod.Spec.NodeName = ""
				}
			}
			s := newStage(t, known{}, pods...)
			if c.unexpected > 0 {
				s.Underway.recordRefusal("another", time.Now().Add(-c.unexpected), false)
			}
			var asked []string
			s.refuse = func(name string, dry bool) error {
				if !dry {
					t.Errorf("pod %s was deleted", name)
				}
				if asked = append(asked, name); name == c.gone {
					return apierrors.NewNotFound(v1.Resource("pods"), name)
				}
				if c.refuses != "" && strings.HasPrefix(name, c.refuses) {
					return forbidden(name)
				}
				return nil
			}
			errs := s.RehearseAll(s.ctx, pods)
			slices.Sort(asked)
			if got := strings.Join(asked, " "); got != c.asked || len(errs) != c.fails {
				t.Errorf("asked about %q, want %q; %d errors, want %d", got, c.asked, len(errs), c.fails)
			}
			if refused := s.Underway.Refusals(time.Now()); len(refused) != c.refused {
				t.Errorf("refused: %v, want %d", refused, c.refused)
			}
		})
	}
}

// TestUnexpectedRefusal: an eviction that is refused makes every pod be asked about from then on.
func TestUnexpectedRefusal(t *testing.T) {
	pods := members("v", 3, 3, "n0")
	s := newStage(t, known{}, pods...)
	var mu sync.Mutex
	asked := 0
	s.refuse = func(name string, dry bool) error {
		mu.Lock()
		defer mu.Unlock()
		if dry {
			asked++
		}
		if name == "v-2" {
			return forbidden(name)
		}
		return nil
	}
	s.Underway.AddVictims(s.Gangs, preemptionOf("p"), pods)
	if errs := s.RehearseAll(s.ctx, pods); len(errs) != 0 || asked != 1 {
		t.Fatalf("%d were asked about, %v, want one without an error", asked, errs)
	}
	if _, err := s.Evict(s.ctx, preemptionOf("p"), Eviction{Pod: pods[2]}); err == nil {
		t.Fatal("no error")
	}
	if asked = 0; len(s.RehearseAll(s.ctx, pods)) != 1 || asked != 3 {
		t.Errorf("%d were asked about, want all 3, and one refused", asked)
	}
}
