package invariant

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestCheckRoom(t *testing.T) {
	queues := func(c *Config) {
		c.AllQueues = true
		c.Queues = []Queue{{Name: "top"}, {Name: "low", Parent: "top", Capability: v1.ResourceList{gpu: resource.MustParse("3")}}}
	}
	for name, c := range map[string]struct {
		configure func(*Config)
		tell      func(s *story)
		want      string
	}{
		"a gang waits and there is room": {
			tell: func(s *story) { s.at(1, s.gangPods("g", 8, 8, asking(4))...) },
			want: "what fits is bound in the end: gang a/g: 8 members wait (the largest asks for 4 nvidia.com/gpu), and there is room for 8, 0 of which others that wait could take",
		},
		"a gang waits that is larger than the cluster": {
			tell: func(s *story) { s.at(1, s.gangPods("g", 9, 9, asking(4))...) },
		},
		"room on a cordoned node is none": {
			tell: func(s *story) { s.at(1, append(s.gangPods("g", 8, 8, asking(4)), NodeSeen{s.node(0, true)})...) },
		},
		"what runs leaves no room": {
			tell: func(s *story) { s.at(1, append(s.gangPods("g", 8, 8, asking(4)), s.pod("x"), s.bound("x", 0))...) },
		},
		"a gang that makes no sense waits": {
			tell: func(s *story) { s.at(1, s.gangPods("g", 2, 2, badInput)...) },
		},
		"with queues, what fits on no node takes no room": {
			configure: queues,
			tell: func(s *story) {
				s.at(1, append(s.gangPods("n", 9, 9, asking(1<<60), badInput), s.pod("p", asking(8)))...)
			},
			want: "what fits is bound in the end: pod a/p: 1 members wait (the largest asks for 8 nvidia.com/gpu), and there is room for 4, 0 of which others that wait could take",
		},
		"with queues, what makes no sense and fits takes room": {
			configure: queues,
			tell: func(s *story) {
				s.at(1, append(s.gangPods("n", 4, 4, badInput), s.pod("p", asking(8)))...)
			},
		},
		"members are missing": {
			tell: func(s *story) { s.at(1, s.gangPods("g", 2, 3)...) },
		},
		"a gang fits, but into no rack": {
			tell: func(s *story) { s.at(1, s.gangPods("g", 5, 5, asking(4), annotated(keyTopology, "rack"))...) },
		},
		"a gang fits into a rack": {
			tell: func(s *story) { s.at(1, s.gangPods("g", 4, 4, asking(4), annotated(keyTopology, "rack"))...) },
			want: "what fits is bound in the end: gang a/g: 4 members wait (the largest asks for 4 nvidia.com/gpu), and there is room for 4 in r0",
		},
		"a later member has to stay in the rack of the others": {
			tell: func(s *story) {
				s.at(1, s.gangPods("g", 3, 2, asking(8), annotated(keyTopology, "rack"))...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 1))
			},
		},
		"a later member waits and there is room": {
			tell: func(s *story) {
				s.at(1, s.gangPods("g", 3, 2)...)
				s.at(2, s.bound("g-0", 0), s.bound("g-1", 1))
			},
			want: "what fits is bound in the end: gang a/g: 1 members wait",
		},
		"a gang of a group whose other gang is missing": {
			tell: func(s *story) { s.at(1, s.gangPods("g", 1, 1, annotated(keyGroups, `["a/g","a/h"]`))...) },
		},
		"what a NonStrict gang may hold is not free": {
			tell: func(s *story) {
				s.at(1, append(s.gangPods("n", 9, 9, asking(4), annotated(keyMode, "NonStrict")), s.pod("p", asking(8)))...)
			},
		},
		"with queues, what all others that wait ask for is not free": {
			configure: queues,
			tell:      func(s *story) { s.at(1, append(s.gangPods("n", 9, 9, asking(4)), s.pod("p", asking(8)))...) },
		},
		"with queues, there is room for all": {
			configure: queues,
			tell:      func(s *story) { s.at(1, append(s.gangPods("n", 9, 9, asking(4)), s.pod("p", asking(0)))...) },
			want:      "what fits is bound in the end: pod a/p: 1 members wait",
		},
		"a queue has a ceiling": {
			configure: queues,
			tell:      func(s *story) { s.at(1, s.pod("p", asking(4), inQueue("low"))) },
		},
		"a queue is below its ceiling": {
			configure: queues,
			tell:      func(s *story) { s.at(1, s.pod("p", asking(3), inQueue("low"))) },
			want:      "what fits is bound in the end: pod a/p: 1 members wait",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.configure == nil {
				c.configure = func(*Config) {}
			}
			s := tell(t, c.configure)
			c.tell(s)
			s.check.CheckRoom()
			s.want(c.want)
		})
	}
}

// TestDemand: amounts that no cluster has are no demand.
func TestDemand(t *testing.T) {
	s := tell(t)
	s.at(1, append(s.gangPods("n", 9, 9, asking(1<<60), badInput), s.pod("p", asking(8)))...)
	if asked, there, waiting := s.check.Demand(gpu); asked != 8 || there != 32 || waiting != 10 {
		t.Errorf("%d of %d GPUs are asked for and %d pods wait, want 8 of 32 and 10", asked, there, waiting)
	}
}

func TestCheckEmpty(t *testing.T) {
	s := tell(t)
	s.check.CheckEmpty(map[string]float64{"lockstep_holds": 0})
	s.want("")
	s.check.CheckEmpty(map[string]float64{"lockstep_holds": 2})
	s.want("nothing left over: metric lockstep_holds: it is 2 when everything was deleted")

	s = tell(t)
	s.at(1, s.pod("p"))
	s.check.CheckEmpty(nil)
	s.want(`nothing left over: pod a/p: it is there (node "", Pending) when everything was deleted`)
}

func TestCheckQuiet(t *testing.T) {
	s := tell(t)
	s.at(1, s.pod("a"), s.pod("b"), s.bound("a", 0))
	s.at(20, s.phase("a", v1.PodSucceeded))
	s.at(45)
	s.check.CheckQuiet()
	s.want("")
	s.at(46, Health{[]string{"scheduler"}})
	s.at(60, Health{})
	s.check.CheckQuiet()
	s.want("")
	s.at(65, s.deleting("b"), s.phase("b", v1.PodFailed))
	s.check.CheckQuiet()
	s.want("what fits is bound in the end: the cluster: it does not come to rest, and no pod has ended by itself for 31 healthy seconds")
}

func TestLittle(t *testing.T) {
	enough := Counts{Healthy: 50 * time.Second, Total: 100 * time.Second, Started: 3, Preemptors: 5, PreemptorsExcused: 4}
	for name, c := range map[string]struct {
		change func(*Counts)
		length time.Duration
		want   string
	}{
		"enough":                               {func(*Counts) {}, 5 * time.Minute, ""},
		"hardly healthy":                       {func(n *Counts) { n.Healthy = 39 * time.Second }, time.Minute, "it was healthy for 39 of 100 seconds"},
		"nothing started":                      {func(n *Counts) { n.Started = 0 }, time.Minute, "no gang started"},
		"all preemptors were excused":          {func(n *Counts) { n.PreemptorsExcused = 5 }, 2 * time.Minute, "no preemptor was judged"},
		"a short run has perhaps no preemptor": {func(n *Counts) { n.Preemptors, n.PreemptorsExcused = 0, 0 }, time.Minute, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := enough
			c.change(&n)
			if got := n.Little(c.length); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestCheckWithdrawals(t *testing.T) {
	line := func(second float64, preemptor, why string) string {
		at := begin.Add(time.Duration(second * float64(time.Second)))
		return fmt.Sprintf("I%s    3075 act.go:60] \"Preemption aborted; the preemptor will retry\" pod=\"a/g-0\" preemptor=%q why=%q\n",
			at.Format("0102 15:04:05.000000"), preemptor, why)
	}
	times := func(n int, from, each float64) (log string) {
		for i := range n {
			log += line(from+float64(i)*each, "gang a/g (priority 5)", "gang a/v has lost members")
		}
		return log
	}
	for name, c := range map[string]struct {
		log, want string
	}{
		"once a second": {
			times(6, 10, 1),
			"no decision withdrawn over and over: gang a/g (priority 5): from 12:00:10.000 to 12:00:15.000 it was decided 6 times to evict for it, and each time withdrawn: gang a/v has lost members",
		},
		"now and then":               {times(30, 10, 2.1), ""},
		"in a burst":                 {times(20, 10, 0.05), ""},
		"with a fault between":       {times(4, 45, 1) + times(4, 51, 1), ""},
		"while something was faulty": {times(20, 51, 0.2), ""},
		"before it was seen again what the API server has": {times(20, 55.1, 0.2), ""},
		"after a fault":         {times(10, 62.1, 0.5), "no decision withdrawn over and over: gang a/g (priority 5): from 12:01:02.100 to 12:01:04."},
		"for different reasons": {line(1, "gang a/g", "a") + line(2, "gang a/g", "b") + line(3, "gang a/g", "c") + line(4, "gang a/g", "d") + line(5, "gang a/g", "e") + line(6, "gang a/g", "f"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := tell(t)
			s.at(50, Health{[]string{APIServer}})
			s.at(54, Health{})
			s.at(80)
			s.check.CheckWithdrawals("I0101 all is well\n" + c.log)
			s.want(c.want)
		})
	}
}

func TestFindings(t *testing.T) {
	calm := "I0101 all is well\nE0101 a pod panics about nothing\n"
	if found := Findings(calm); len(found) > 0 {
		t.Errorf("found %q in a log without a panic", found)
	}
	for _, line := range []string{"panic: assignment to entry in nil map", "WARNING: DATA RACE", "fatal error: concurrent map writes", `E0101 "Observed a panic" panic="x"`} {
		if found := Findings(calm + line + "\ngoroutine 1"); len(found) != 1 {
			t.Errorf("found %q, want %q", found, line)
		}
	}
}
