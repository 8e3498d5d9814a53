package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAsked(t *testing.T) {
	tiers := []PolicyTier{
		{Policies: []Policy{{Name: PolicyPriority}, {Name: PolicyGang}, {Name: PolicyConformance}}},
		{Policies: []Policy{{Name: PolicyDRF, Answers: []PolicyQuestion{JobOrder}}, {Name: PolicyProportion}}},
	}
	for question, want := range map[PolicyQuestion][][]PolicyName{
		QueueOrder:  {{PolicyPriority}, {PolicyProportion}},
		JobOrder:    {{PolicyPriority, PolicyGang}, {PolicyDRF}},
		TaskOrder:   {{PolicyPriority}},
		Overused:    {{PolicyProportion}},
		Preemptable: {{PolicyPriority, PolicyGang, PolicyConformance}},
		Reclaimable: {{PolicyGang, PolicyConformance}, {PolicyProportion}},
	} {
		if diff := cmp.Diff(want, Asked(tiers, question)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", question, diff)
		}
	}
}

// TestPolicyNames: every policy is listed, and answers something.
func TestPolicyNames(t *testing.T) {
	if len(PolicyNames()) != len(answers) {
		t.Errorf("%d policies are listed, of %d", len(PolicyNames()), len(answers))
	}
	for _, name := range PolicyNames() {
		if len(CanAnswer(name)) == 0 {
			t.Errorf("%s answers nothing", name)
		}
	}
}
