package gangstate

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// membership is what follows from objects alone: who is in a gang, and what the gang asks for.
type membership struct {
	Members, Describers []string
	Definer             string
	Asked               gangspec.Spec
	Together            []gangspec.Key
	Numbered            map[string]int
}

// memberships returns that of all gangs that have members.
func memberships(s *Gangs) map[gangspec.Key]membership {
	all := map[gangspec.Key]membership{}
	for key, g := range s.gangs {
		if len(g.members) == 0 {
			continue
		}
		of := membership{Asked: g.asked, Numbered: map[string]int{}}
		for _, m := range g.sorted(func(*member) bool { return true }) {
			of.Members = append(of.Members, fmt.Sprintf("%s marked %t namesake %t role %q", m.pod.Name, m.expired && m.pod.Annotations[v1alpha1.TimeoutAnnotation] != "", g.incarnation.hasStaleOwner(gangspec.OriginOf(m.pod)), m.role()))
		}
		for _, m := range g.describers {
			of.Describers = append(of.Describers, m.pod.Name)
		}
		if g.definer != nil {
			of.Definer = g.definer.pod.Name
		}
		for _, one := range g.group.gangs {
			if len(one.members) > 0 {
				of.Together = append(of.Together, one.key)
			}
		}
		for series, numbered := range g.numbers {
			if numbered.members > 0 {
				of.Numbered[series] = numbered.members
			}
		}
		all[key] = of
	}
	return all
}

// TestMembersThatMove: pods come, move between gangs and out of them, are bound and go, while they are scheduled. After
// each input each of them is in the gang that it names, the state is that which a scheduler derives that begins now,
// and what is held for a pod is held in the name of its gang.
func TestMembersThatMove(t *testing.T) {
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 3))
		bytes := make([]byte, 20+random.IntN(600))
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		c := newChaos(t, bytes)
		c.checks = []func(){c.checkMembers, c.checkDerivation, c.checkHolders}
		c.play(t)
	}
}

// checkMembers checks that each pod is a member of the gang that it names, and of no other.
func (c *chaos) checkMembers() {
	for uid, m := range c.s.members {
		pod := c.pods[uid]
		if pod == nil || m.pod != pod {
			continue // what happens is on its way
		}
		if key, _, ok := gangspec.KeyOf(pod); !ok || key != m.gang.key {
			c.fail("pod %s is in gang %s, and names %s", uid, m.gang.key, key)
		}
	}
}

// checkDerivation compares the state with that of a scheduler that begins now.
func (c *chaos) checkDerivation() {
	fresh := newOpen(c.s.defaults, c.s.backoff)
	for key, objects := range c.objects {
		for kind, object := range objects {
			if object != nil {
				fresh.Describe(kind, key, object, c.now)
			}
		}
	}
	for _, m := range c.s.members {
		fresh.ObservePod(m.pod, c.now)
	}
	if diff := cmp.Diff(memberships(fresh), memberships(c.s)); diff != "" {
		c.fail("a scheduler that begins now derives something else (-derived +kept):\n%s", diff)
	}
}

// checkHolders checks in whose name the places of members are held.
func (c *chaos) checkHolders() {
	for uid := range c.ledger {
		if m := c.s.members[uid]; m == nil || c.holders[uid] != m.gang.group.key().String() {
			c.fail("%s is held for pod %s by %s", c.ledger[uid], uid, c.holders[uid])
		}
	}
}

// versions are a pod before and after it moved.
func versions() map[string][2]*v1.Pod {
	plain := podOf("p")
	byLabel := func(key, name string) *v1.Pod { return podOf("p", labeled(key, name)) }
	return map[string][2]*v1.Pod{
		"by annotation, out":          {podOf("p", of("x")), plain},
		"by annotation, in":           {plain, podOf("p", of("x"))},
		"by annotation, over":         {podOf("p", of("x")), podOf("p", of("y"))},
		"by label, out":               {byLabel(v1alpha1.PodGroupLabel, "x"), plain},
		"by label, in":                {plain, byLabel(v1alpha1.PodGroupXLabel, "x")},
		"by label, over":              {byLabel(v1alpha1.PodGroupNameLabel, "x"), byLabel(v1alpha1.PodGroupLabel, "y")},
		"from its owner's, out":       {podOf("p", byJob("job")), podOf("p", byJob("job"), mutely(v1alpha1.GangAnnotation))},
		"into its owner's":            {podOf("p", of("x"), byJob("job")), podOf("p", byJob("job"))},
		"annotation off, label stays": {podOf("p", of("x"), labeled(v1alpha1.PodGroupLabel, "y")), byLabel(v1alpha1.PodGroupLabel, "y")},
	}
}

// TestVersionsOfAPod: until the watch of members and the queue have the same version of a pod that moved, it is not let
// through for the gang of the other version, nor does a cycle of that version plan or place it there.
func TestVersionsOfAPod(t *testing.T) {
	for name, pods := range versions() {
		t.Run(name, func(t *testing.T) {
			before, now := edit(pods[0], needs(1)), edit(pods[1], needs(1))
			for _, c := range []struct{ seen, asked *v1.Pod }{{before, now}, {now, before}} {
				s := newOpen(gangspec.Defaults{}, Backoff{})
				s.ObservePod(c.seen, start)
				_, _, member := gangspec.KeyOf(c.asked)
				if _, refusal := s.Queue(c.asked); (refusal == "") == member {
					t.Errorf("seen as %v, asked as %v: let through: %t", c.seen.Labels, c.asked.Labels, refusal == "")
				}
				want := Wait
				if !member {
					want = Outside
				}
				if v := s.BeginCycle(c.asked); v.Verdict != want {
					t.Errorf("seen as %v, asked as %v: verdict %d, want %d", c.seen.Labels, c.asked.Labels, v.Verdict, want)
				}
				if want, _ := s.Wants(c.asked); want.Job != "" || !slices.Equal(want.Pods, []*v1.Pod{c.asked}) {
					t.Errorf("seen as %v, asked as %v: it wants %v", c.seen.Labels, c.asked.Labels, want)
				}
			}
		})
	}
}

// TestPlacedForAnotherGang: a member that moves during its cycle gives back the node that its former gang's plan gave
// it; the gang that it is in now may want it elsewhere.
func TestPlacedForAnotherGang(t *testing.T) {
	s := newOpen(gangspec.Defaults{}, Backoff{})
	s.ObservePod(podOf("y1", of("y"), needs(1), on("n")), start)
	s.ObservePod(podOf("p", of("x"), needs(1)), start)
	s.ObservePod(podOf("p", of("y"), needs(1)), start)
	if e := s.Reserved("p", "m", start); !slices.Equal(e.Reject, []types.UID{"p"}) {
		t.Errorf("reserved by the cycle of its former gang, it is not rejected: %+v", e)
	}
}

// TestRunningPodThatMoves: a pod that runs counts where it says, and nowhere else; its former gang lacks it.
func TestRunningPodThatMoves(t *testing.T) {
	for name, c := range map[string]struct {
		to           func(*v1.Pod)
		left, joined int
	}{
		"out of its gang":   {mutely(v1alpha1.GangNameAnnotation), 1, 0},
		"into another gang": {of("y"), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOpen(gangspec.Defaults{}, Backoff{})
			for _, pod := range podsNamed("p", 2, of("x"), needs(2), on("n")) {
				s.ObservePod(pod, start)
			}
			e := s.ObservePod(podOf("p2", c.to, needs(2), on("n")), start)
			if len(e.Reject)+len(e.Activate) > 0 {
				t.Errorf("a pod that runs is rejected or activated: %+v", e)
			}
			x, y := s.gangs[gangspec.Key{Namespace: "a", Name: "x"}], s.gangs[gangspec.Key{Namespace: "a", Name: "y"}]
			joined := 0
			if y != nil {
				joined = y.byState[Bound].N
			}
			if x.byState[Bound].N != c.left || x.broken.IsZero() || joined != c.joined {
				t.Errorf("%d run in the gang it left, broken since %s; %d in the other", x.byState[Bound].N, x.broken, joined)
			}
		})
	}
}

// TestSucceededPodThatMoves: a pod that ran to success counts where it says, too.
func TestSucceededPodThatMoves(t *testing.T) {
	s := newOpen(gangspec.Defaults{}, Backoff{})
	pod := podOf("p", of("x"), needs(1), on("n"), ended(0))
	s.ObservePod(pod, start)
	s.Leave(edit(pod, mutely(v1alpha1.GangNameAnnotation)), start)
	if len(s.succeeded) > 0 || len(s.gangs) > 0 {
		t.Errorf("it still counts: %v", slices.Collect(maps.Keys(s.gangs)))
	}
}
