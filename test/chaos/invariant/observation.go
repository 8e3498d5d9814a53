package invariant

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Observation is something that was seen of the cluster, or that was done to it.
type Observation interface{ apply(c *Checker) }

// PodSeen is a pod that was created or changed, PodGone one that is no more, as last seen.
type (
	PodSeen struct{ Pod *v1.Pod }
	PodGone struct{ Pod *v1.Pod }
)

// PodsListed is all pods, after a watch was cut, or at the begin.
type PodsListed struct{ Pods []*v1.Pod }

// NodeSeen is a node that was created or changed, NodeGone one that is no more.
type (
	NodeSeen struct{ Node *v1.Node }
	NodeGone struct{ Name string }
)

// Group is what matters of a PodGroup.
type Group struct {
	// Key is namespace/name.
	Key         string
	UID         types.UID
	Min         int
	Annotations map[string]string
	Labels      map[string]string
}

// GroupSeen is a PodGroup that was created or changed, GroupGone one that is no more.
type (
	GroupSeen struct{ Group Group }
	GroupGone struct{ Key string }
)

// Told is an event of the API. It may come before or after what it reports, and twice.
type Told struct{ Event *v1.Event }

// APIServer is what Health calls the API server.
const APIServer = "API server"

// Health is which components are faulty from now on; none: all is well.
type Health struct{ Down []string }

// Answered is how long the API server took to answer a call. It bounds how long a call may be on its way.
type Answered struct{ After time.Duration }

// UserEnds is that the user is about to delete a pod, or everything of a gang ("namespace/name"): such a deletion is no
// eviction, even if the scheduler had begun one.
type UserEnds struct {
	Pod  types.UID
	Gang string
}

// Fault is something that was done to the cluster, for the record.
type Fault struct{ Text string }

// Tick is the passing of time.
type Tick struct{}

func (o Tick) apply(c *Checker) {
	for _, g := range c.active {
		c.judge(g)
	}
	c.judgePursuits()
	c.judgeMarks()
	c.settle(false)
	c.judgeMoves()
}

// slowFor is how long an answer that took long counts.
const slowFor = 5 * time.Second

func (o Answered) apply(c *Checker) {
	if o.After >= c.slowest || c.now.Sub(c.slowestAt) > slowFor {
		c.slowest, c.slowestAt = o.After, c.now
	}
}

// noticed is how late it may be seen that something is faulty.
const noticed = 2 * time.Second

func (o Fault) apply(c *Checker) { c.log("fault", "%s", o.Text) }

func (o UserEnds) apply(c *Checker) {
	if o.Pod != "" {
		c.ending[string(o.Pod)] = true
		return
	}
	c.ending[o.Gang] = true
	c.log("gang "+o.Gang, "its user ends it")
}

func (o Health) apply(c *Checker) {
	was, is := strings.Join(c.down, ", "), strings.Join(o.Down, ", ")
	if was == is {
		return
	}
	if was == "" {
		c.faults++
		c.troubled = append(c.troubled, span{from: c.now.Add(-noticed)})
		for _, g := range c.active {
			if g.partial != nil {
				g.partial.interrupted = true
			}
		}
	}
	c.down = o.Down
	c.seeAPIServer()
	if is == "" {
		if n := len(c.troubled); n > 0 {
			c.troubled[n-1].to = maxTime(c.now, c.blindUntil)
		}
		c.log("health", "all is well")
	} else {
		c.log("health", "faulty: %s", is)
	}
}

// seeAPIServer takes in whether the API server answers. Clients that watch it ask again ever more rarely, and at random
// up to twice as late: the next time may be as far off as twice the time for which they asked in vain.
func (c *Checker) seeAPIServer() {
	switch away := slices.Contains(c.down, APIServer); {
	case away && c.awaySince.IsZero():
		c.awaySince = c.now
	case !away && !c.awaySince.IsZero():
		c.blindUntil = maxTime(c.blindUntil, c.now.Add(2*c.now.Sub(c.awaySince)))
		c.awaySince = time.Time{}
	}
}

func (o GroupSeen) apply(c *Checker) {
	before, known := c.objects[o.Group.Key]
	c.objects[o.Group.Key] = o.Group
	g := c.gangs[o.Group.Key]
	if g == nil || known && before.Min == o.Group.Min && before.UID == o.Group.UID {
		return
	}
	c.changed(g, fmt.Sprintf("PodGroup has minimum %d", o.Group.Min))
	c.read(g)
	c.judge(g)
}

func (o GroupGone) apply(c *Checker) {
	delete(c.objects, o.Key)
	if g := c.gangs[o.Key]; g != nil {
		c.changed(g, "PodGroup is gone")
		c.read(g)
		c.judge(g)
	}
}
