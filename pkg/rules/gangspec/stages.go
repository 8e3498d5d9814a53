package gangspec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// Stages are the numbers of members that have to run for each of the parts of a gang that its
// workload makes one after the other: of the first part, of the first two, and so on. The last is
// the minimum. A later part is made when the one before runs, or has succeeded, so the gang cannot
// wait for it. There are at least two; nil if all members are made at once.
type Stages []int

// Reached returns the stage that is to run now, from 0: the first that is not complete; or the last complete one, while
// there is no member of the next. standing is the number of members that are bound or have succeeded; all is the number
// of those and the ones that wait.
func (s Stages) Reached(standing, all int) int {
	stage := 0
	for stage < len(s)-1 && standing >= s[stage] && all > s[stage] {
		stage++
	}
	return stage
}

// StagesText returns the value of the annotation stages for parts of these sizes; empty for none.
func StagesText(sizes []int) string {
	var parts []string
	for _, n := range sizes {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, ",")
}

// parseStages reads the sizes of the parts. Those beyond the minimum need not run.
func (p *parser) parseStages() Stages {
	value, onObject := p.value(v1alpha1.StagesAnnotation)
	if value == "" || p.spec.Min == 0 {
		return nil
	}
	stages, err := readStages(value)
	if err != nil || stages[len(stages)-1] < p.spec.Min {
		want := fmt.Sprintf("%s of %d", keys.ValueOf(v1alpha1.StagesAnnotation).Want, p.spec.Min)
		p.bad(onObject, v1alpha1.StagesAnnotation, value, want, "no stages: all members start together")
		return nil
	}
	last, _ := slices.BinarySearch(stages, p.spec.Min)
	if last == 0 {
		return nil
	}
	stages[last] = p.spec.Min
	return stages[:last+1]
}

func readStages(value string) (Stages, error) {
	var stages Stages
	sum := 0
	for size := range strings.SplitSeq(value, ",") {
		n, err := minimum.ParseInteger(strings.TrimSpace(size))
		if err != nil {
			return nil, err
		}
		sum += n
		stages = append(stages, sum)
		if len(stages) > keys.MaxStages {
			return nil, errors.New("reading stages: too many")
		}
	}
	return stages, nil
}

// AtStage returns what the gang asks for while the given stage, from 0, is to run.
func (s *Spec) AtStage(stage int) Spec {
	at := *s
	if stage < len(s.Stages)-1 {
		at.Min = s.Stages[stage]
	}
	return at
}

// Stage returns which stage, from 1, of how many the wishes are for; 0 of 0 if the gang has no stages.
func (s *Spec) Stage() (stage, stages int) {
	if len(s.Stages) == 0 {
		return 0, 0
	}
	before, _ := slices.BinarySearch(s.Stages, s.Min)
	return before + 1, len(s.Stages)
}
