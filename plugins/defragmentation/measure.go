package defragmentation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/lockstep-sh/lockstep/pkg/rules/defrag"
	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

var (
	gangsFit = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "lockstep", Subsystem: "defragmentation", Name: "gangs_fit", StabilityLevel: metrics.ALPHA,
		Help: "How many gangs of a shape that waits for room fit as things are, by domain of its required topology; the " +
			"domain is empty for one without.",
	}, []string{"shape", "domain"})
	freeAmount = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "lockstep", Subsystem: "defragmentation", Name: "free", StabilityLevel: metrics.ALPHA,
		Help: "How much of a resource is free on all nodes, and not held.",
	}, []string{"resource"})
	fragmented = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "lockstep", Subsystem: "defragmentation", Name: "fragmented_ratio", StabilityLevel: metrics.ALPHA,
		Help: "Which share of what is free of a resource lies on nodes where it is too little for a member of the gangs " +
			"that wait, averaged over these members.",
	}, []string{"resource"})
)

// mostDomains is for how many domains the number of gangs that fit is reported.
const mostDomains = 64

var registerMetrics = sync.OnceFunc(func() { legacyregistry.MustRegister(gangsFit, freeAmount, fragmented) })

// measured is what a round has measured of the fragmentation, for some of the demands that wait.
type measured struct {
	of   sets.Set[*demand]
	free float64
	// lost is how much of free was too little for each member, summed over the members.
	lost    float64
	members int
}

// measureRest measures how what is free suits the waiting demands for which no moves were sought in this round, up to
// as many in all as moves are sought for: a plan may be under way, or it is too early for one.
func (r *round) measureRest(ctx context.Context, waiting []*demand) error {
	for _, d := range waiting[:min(len(waiting), tries)] {
		if r.seen.of.Has(d) {
			continue
		}
		if _, _, err := r.withSimulation(ctx, d, func(p *problem) (*proposal, string, error) {
			r.measure(d, p)
			return nil, "", nil
		}); err != nil {
			return fmt.Errorf("measuring what is free for %s: %w", d.name, err)
		}
	}
	return nil
}

// measure adds how what is free suits a demand that waits.
func (r *round) measure(d *demand, p *problem) {
	if !d.waits() || !p.plain() {
		return
	}
	r.seen.of.Insert(d)
	shape, key := p.shapeOf(d)
	counts, _ := capacity(&p.Problem, nil)
	for i, n := range counts {
		if i == mostDomains {
			break
		}
		domain := ""
		if key != "" && len(p.Want[0].Domains[i]) > 0 {
			domain = p.simulation.Node(p.Want[0].Domains[i][0]).Node().Labels[key]
		}
		gangsFit.WithLabelValues(shape, domain).Set(float64(n))
	}
	column := slices.Index(p.columns, r.args.ResourceType)
	if column < 0 {
		return
	}
	r.seen.free = 0
	for node := range p.Nodes {
		has := float64(max(0, p.Nodes[node].Free[column]))
		r.seen.free += has
		for class, c := range p.Want[0].Classes {
			if !defrag.Fits(p.Nodes[node].Free, c.Request) || !p.FitsMember(0, class, node) {
				r.seen.lost += has * float64(c.Count)
			}
		}
	}
	for _, c := range p.Want[0].Classes {
		r.seen.members += c.Count
	}
}

// publish sets the metrics to what a round has measured. The share is that of Weng et al., "Beware of Fragmentation"
// (USENIX ATC 2023), for whole devices: what is free on a node is a fragment for a pod that does not fit there.
func (r *round) publish() {
	seen := &r.seen
	if seen.members == 0 {
		return
	}
	name := string(r.args.ResourceType)
	freeAmount.WithLabelValues(name).Set(seen.free)
	if seen.free > 0 {
		fragmented.WithLabelValues(name).Set(seen.lost / seen.free / float64(seen.members))
	}
}

// shapeOf returns what a gang asks for in words, and the topology that it requires: 8 x 8 nvidia.com/gpu in one
// topology.example.com/rack.
func (p *problem) shapeOf(d *demand) (shape, key string) {
	var parts []string
	for class, c := range p.Want[0].Classes {
		asks := resource.Vector{}
		for name, amount := range p.classes[0][class].Demand.Request {
			if name != v1.ResourceCPU && name != v1.ResourceMemory && name != v1.ResourceEphemeralStorage {
				asks[name] = amount
			}
		}
		parts = append(parts, fmt.Sprintf("%d x %s", c.Count, asks))
	}
	shape, key = strings.Join(parts, " + "), d.attempt.Gangs[0].Spec.RequiredTopology
	if key != "" {
		shape += " in one " + key
	}
	return shape, key
}
