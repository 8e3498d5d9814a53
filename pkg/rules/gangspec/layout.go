package gangspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// Topology is the levels of a cluster's topology, coarsest first.
type Topology struct {
	Levels []TopologyLevel
	// Fill: gangs that wish for nothing fill the domains of the levels one after the other,
	// the fullest first.
	Fill bool
}

// TopologyLevel is a node label key, and what else it is called.
type TopologyLevel struct{ Key, Name string }

func (t *Topology) level(key string) int {
	return slices.IndexFunc(t.Levels, func(level TopologyLevel) bool { return level.Key == key })
}

// Layout is by which levels of a topology a gang is laid out.
type Layout struct {
	// Levels are coarsest first, unless Unordered.
	Levels []Level
	// Unordered: it is not known which of the levels without slices are coarser than others.
	Unordered bool
	// Custom: the levels are those of the cluster; the gang does not wish for any.
	Custom bool
	// Even: members that no single domain takes spread evenly.
	Even bool
	// Shared: all gangs of the group have to be in one domain of the required topology, if
	// all say so.
	Shared bool
}

// Wished returns the levels by which the gang itself asks to be laid out. Its wish is met if one domain of any of them
// takes the whole gang.
func (l *Layout) Wished() []string {
	if l.Custom {
		return nil
	}
	var wished []string
	for _, level := range l.Levels {
		wished = append(wished, level.Key)
	}
	return wished
}

// Level is a level by which a gang is laid out: its node label key, and the number of members
// with consecutive ranks that have to be in one domain of it; 0 for none.
type Level struct {
	Key   string
	Slice int
}

// maxLayers bounds the layers that a gang may wish for: each bad one is reported.
const maxLayers = 16

func (p *parser) parseLayout(topology *Topology) {
	p.spec.RequiredTopology = p.parseRequired()
	var preferred []string
	if key := p.parsePreferred(); key != "" {
		preferred = append(preferred, key)
	}
	must, prefer := p.parseGather(topology)
	if p.spec.RequiredTopology == "" {
		p.spec.RequiredTopology = must
	}
	if len(preferred) == 0 {
		preferred = prefer
	}
	layout := &p.spec.Layout
	layout.Levels = p.parseSlices()
	layout.Custom = len(layout.Levels)+len(preferred) == 0
	if !layout.Custom || topology.Fill {
		for _, level := range topology.Levels[topology.level(p.spec.RequiredTopology)+1:] {
			preferred = append(preferred, level.Key)
		}
	}
	layout.add(topology, preferred)
	layout.Custom = layout.Custom && len(layout.Levels) > 0
	layout.Even = p.anyOf(v1alpha1.TopologySpreadAnnotation, "as few domains as can be") == v1alpha1.TopologySpreadEven
	layout.Shared = p.parseScope()
}

func (p *parser) parseScope() bool {
	const key = v1alpha1.TopologyScopeAnnotation
	value, onObject := p.value(key)
	if value != "" && value != v1alpha1.TopologyScopeGroup {
		p.holdBack(onObject, key, value)
	}
	return value == v1alpha1.TopologyScopeGroup
}

// add adds levels without slices, where they belong among the others.
func (l *Layout) add(topology *Topology, labels []string) {
	for _, key := range labels {
		if slices.ContainsFunc(l.Levels, func(level Level) bool { return level.Key == key }) {
			continue
		}
		at := topology.level(key)
		finer := slices.IndexFunc(l.Levels, func(level Level) bool { return topology.level(level.Key) > at })
		if at < 0 || finer < 0 {
			finer = len(l.Levels)
		}
		l.Levels = slices.Insert(l.Levels, finer, Level{Key: key})
	}
	known := func(level Level) bool { return topology.level(level.Key) >= 0 }
	sliced := func(level Level) bool { return level.Slice > 0 }
	all := func(is func(Level) bool) bool {
		return !slices.ContainsFunc(l.Levels, func(level Level) bool { return !is(level) })
	}
	l.Unordered = len(l.Levels) > 1 && !all(known) && !all(sliced)
}

func (p *parser) parseSlices() []Level {
	value, onObject := p.value(v1alpha1.TopologySlicesAnnotation)
	if value == "" {
		return nil
	}
	levels, err := readSlices(value)
	if err != nil {
		p.wrongValue(onObject, v1alpha1.TopologySlicesAnnotation, value, "no slices")
		return nil
	}
	return levels
}

func readSlices(value string) ([]Level, error) {
	var read []struct {
		Topology string `json:"topology"`
		Size     int    `json:"size"`
	}
	if err := json.Unmarshal([]byte(value), &read); err != nil {
		return nil, fmt.Errorf("reading slices: %w", err)
	}
	if read == nil || len(read) > keys.MaxSlices {
		return nil, errors.New("reading slices: null, or too many")
	}
	var levels []Level
	for i, slice := range read {
		switch {
		case slice.Topology == "" || len(validation.IsQualifiedName(slice.Topology)) > 0:
			return nil, fmt.Errorf("reading slices: topology %q", slice.Topology)
		case slice.Size < 1 || slice.Size > maxCount || i > 0 && read[i-1].Size%slice.Size != 0:
			return nil, fmt.Errorf("reading slices: size %d", slice.Size)
		case slices.ContainsFunc(levels, func(level Level) bool { return level.Key == slice.Topology }):
			return nil, fmt.Errorf("reading slices: topology %q twice", slice.Topology)
		}
		levels = append(levels, Level{Key: slice.Topology, Slice: slice.Size})
	}
	return levels, nil
}

// parseGather reads Koordinator's wish: the finest layer that has to have all members in one
// domain, and the layers that should.
func (p *parser) parseGather(topology *Topology) (must string, prefer []string) {
	value, onObject := p.value(v1alpha1.NetworkTopologySpecAnnotation)
	if value == "" {
		return "", nil
	}
	var read struct {
		GatherStrategy []struct {
			Layer    string `json:"layer"`
			Strategy string `json:"strategy"`
		} `json:"gatherStrategy"`
	}
	if err := json.Unmarshal([]byte(value), &read); err != nil {
		p.wrongValue(onObject, v1alpha1.NetworkTopologySpecAnnotation, value, "no topology")
		return "", nil
	}
	if len(read.GatherStrategy) == 0 {
		p.bad(onObject, v1alpha1.NetworkTopologySpecAnnotation, value, "a JSON object with a gatherStrategy", "no topology")
		return "", nil
	}
	if len(read.GatherStrategy) > maxLayers {
		p.bad(onObject, v1alpha1.NetworkTopologySpecAnnotation, value, fmt.Sprintf("at most %d layers", maxLayers),
			"no topology")
		return "", nil
	}
	finest := -1
	for _, wish := range read.GatherStrategy {
		at := slices.IndexFunc(topology.Levels, func(level TopologyLevel) bool {
			return level.Name == wish.Layer || level.Key == wish.Layer
		})
		switch {
		case wish.Layer == "" || at < 0:
			p.bad(onObject, v1alpha1.NetworkTopologySpecAnnotation, wish.Layer,
				"the name or the label key of a level in topologyLevels of GangArgs", "nothing for this layer")
		case wish.Strategy == v1alpha1.MustGather:
			finest = max(finest, at)
		case wish.Strategy == v1alpha1.PreferGather:
			prefer = append(prefer, topology.Levels[at].Key)
		default:
			p.bad(onObject, v1alpha1.NetworkTopologySpecAnnotation, wish.Strategy,
				"one of "+v1alpha1.MustGather+", "+v1alpha1.PreferGather, "nothing for layer "+wish.Layer)
		}
	}
	if finest >= 0 {
		must = topology.Levels[finest].Key
	}
	return must, prefer
}
