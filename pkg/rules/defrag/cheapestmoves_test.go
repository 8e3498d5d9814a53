package defrag

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// anywhere returns all nodes as one domain.
func anywhere(p Problem) [][]int { return [][]int{nodes(0, len(p.Nodes)-1)} }

func TestBest(t *testing.T) {
	for sentence, c := range map[string]struct {
		nodes  []string
		wants  []int64
		change func(p *Problem)
		want   string // empty: there is no plan
	}{
		"a gang that fits as it is moves nobody": {
			nodes: []string{"8: 4", "8: 2 2"}, wants: []int64{4, 4},
			want: "; gang on [[[0 1]]]; costs 0",
		},
		"two holes become one": {
			nodes: []string{"3: 2", "3: 1"}, wants: []int64{3},
			want: "1:1>0; gang on [[[1]]]; costs 1",
		},
		"of pods of one card as many move as are needed": {
			nodes: []string{"8: 1 1 1 1 1 1 1", "8: 1 1 1 1 1 1", "8: 1 1 1 1 1 1 1"}, wants: []int64{4},
			want: "1:1>0, 1:1>2; gang on [[[1]]]; costs 2",
		},
		"a pod whose target is full comes after the one that makes room there": {
			nodes: []string{"4: 4", "5: 2 2", "2:"}, wants: []int64{4},
			change: func(p *Problem) { p.Pods[0].Request[0], p.Nodes[0].Free[0] = 3, 1 },
			want:   "2:1>2, 3:0>1 after [0]; gang on [[[0]]]; costs 2",
		},
		"two pods cannot change places between full nodes": {
			nodes: []string{"4: 2 2", "4: 4", "0:"}, wants: []int64{4},
			change: func(p *Problem) { p.Want[0].Domains = [][]int{{1}} },
		},
		"nobody goes where the gang will be": {
			nodes: []string{"4: 2", "2: 1", "4: 4"}, wants: []int64{4},
			want: "",
		},
		"members that a gang can spare move cheaper": {
			nodes: []string{"4: 2a", "4: 2b", "2:"}, wants: []int64{4},
			change: func(p *Problem) { p.Groups[1].Spare = 1 },
			want:   "2:1>0; gang on [[[1]]]; costs 1",
		},
		"a gang that breaks costs as much however many of it move": {
			nodes: []string{"4: 1a 1a 1a", "4: 3", "3:"}, wants: []int64{4},
			change: func(p *Problem) { p.Pods[3].Cost = Cost{11} },
			want:   "1:0>1, 1:0>2, 1:0>2; gang on [[[0]]]; costs 10",
		},
		"a limit that is used up is heeded": {
			nodes: []string{"3: 2", "3: 1"}, wants: []int64{3},
			change: func(p *Problem) { p.Limits, p.Pods[0].Limits, p.Pods[1].Limits = []int{0}, []int{0}, []int{0} },
		},
		"moves that share a limit take turns": {
			nodes: []string{"4: 1 1", "4: 3", "4: 3"}, wants: []int64{4},
			change: func(p *Problem) {
				p.Limits, p.Want[0].Domains = []int{1}, [][]int{{0}}
				for i := range p.Pods {
					p.Pods[i].Limits = []int{0}
				}
			},
			want: "1:0>1, 1:0>2 after [0]; gang on [[[0]]]; costs 2",
		},
		"a limit sends the gang to where it is not": {
			nodes: []string{"4: 1", "4: 1", "4: 4"}, wants: []int64{4},
			change: func(p *Problem) { p.Limits, p.Pods[0].Limits, p.Pods[0].Kind = []int{0}, []int{0}, 7 },
			want:   "1:1>0; gang on [[[1]]]; costs 1",
		},
		"more moves than the budget has are no plan": {
			nodes: []string{"4: 1 1", "4: 3", "4: 3"}, wants: []int64{4},
			change: func(p *Problem) { p.Budget.MaxMoves = 1 },
		},
		"no gang is touched where the budget says so": {
			nodes: []string{"4: 2a", "4: 2b", "2:"}, wants: []int64{4},
			change: func(p *Problem) { p.Budget.MaxGroups = 0 },
		},
		"a launcher and its workers go into one domain": {
			nodes: []string{"4: 1", "4: 1", "4:", "4: 4"}, wants: []int64{4, 4, 1},
			change: func(p *Problem) { p.Want[0].Domains = [][]int{{0, 1, 2}, {3}}; p.Nodes[3].Free[0] = 1 },
			want:   "1:0>3; gang on [[[0 2] [1]]]; costs 1",
		},
		"a launcher that fits nowhere beside its workers is no plan": {
			nodes: []string{"4: 1", "4:"}, wants: []int64{4, 4},
		},
		"an overcommitted node receives nobody, and may be made good": {
			nodes: []string{"4: 3 2", "4: 2"}, wants: []int64{2},
			want: "; gang on [[[1]]]; costs 0",
		},
		"who may not be on a node does not go there": {
			nodes: []string{"3: 2", "3: 1", "1:"}, wants: []int64{3},
			change: func(p *Problem) { p.Fits = func(_, node int) bool { return node != 0 } },
			want:   "1:1>2; gang on [[[1]]]; costs 1",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := cluster(t, c.nodes...)
			p = p.wanting(anywhere(p), c.wants...)
			if c.change != nil {
				c.change(&p)
			}
			r, err := CheapestMoves(p)
			must.Succeed(t, err)
			if !r.Exhaustive || r.Found != (c.want != "") {
				t.Fatalf("found %v (exhaustive %v): %s", r.Found, r.Exhaustive, show(p, r.Plan))
			}
			if !r.Found {
				return
			}
			if diff := cmp.Diff(c.want, show(p, r.Plan)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPartsGoIntoDomainsOfTheirOwn(t *testing.T) {
	p := cluster(t, "4: 1", "4:", "4: 1", "4: 3")
	domains := [][]int{{0, 1}, {2, 3}}
	p = p.wanting(domains, 4, 3).wanting(domains, 3)
	r, err := CheapestMoves(p)
	must.Succeed(t, err)
	if diff := cmp.Diff("; gang on [[[1] [0]] [[2]]]; costs 0", show(p, r.Plan)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

func TestBestSaysThatItGaveUp(t *testing.T) {
	p := cluster(t, "8: 1 1 1 1 1 1 1", "8: 1 1 1 1 1 1 1", "8: 2 2 2 1", "8: 2 2 2 1")
	p = p.wanting(anywhere(p), 4)
	p.Budget.Steps = 20
	r, err := CheapestMoves(p)
	if err != nil || r.Exhaustive {
		t.Errorf("Best with few steps: %+v, %v; want it to say that not all was tried", r, err)
	}
}

func TestNegativeRequestsAreRefused(t *testing.T) {
	for sentence, change := range map[string]func(p *Problem){
		"of a pod":    func(p *Problem) { p.Pods[0].Request[0] = -1 },
		"of a member": func(p *Problem) { p.Want[0].Classes[0].Request[0] = -1 },
	} {
		p := cluster(t, "4: 1", "4: 2")
		p = p.wanting(anywhere(p), 3)
		change(&p)
		if r, err := CheapestMoves(p); err == nil {
			t.Errorf("%s: %+v, want an error", sentence, r)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for sentence, change := range map[string]func(p *Problem, plan *Plan){
		"a move without the one that it comes after": func(_ *Problem, plan *Plan) { plan.Moves[1].After = nil },
		"a move after a later one":                   func(_ *Problem, plan *Plan) { plan.Moves[0].After = []int{1} },
		"a plan without a move that it needs":        func(_ *Problem, plan *Plan) { plan.Moves = plan.Moves[:1]; plan.Cost = Cost{1} },
		"a cost that is not true":                    func(_ *Problem, plan *Plan) { plan.Cost = Cost{1} },
		"a pod that moves twice":                     func(_ *Problem, plan *Plan) { plan.Moves = append(plan.Moves, plan.Moves[0]) },
		"a pod that moves to its own node":           func(p *Problem, plan *Plan) { plan.Moves[0].To = p.Pods[plan.Moves[0].Pod].Node },
		"a member outside its domain":                func(p *Problem, _ *Plan) { p.Want[0].Domains = [][]int{{1, 2}} },
		"a member that has no place":                 func(_ *Problem, plan *Plan) { plan.Places[0][0] = nil },
		"a target that a pod may not be on":          func(p *Problem, _ *Plan) { p.Fits = func(_, node int) bool { return node != 2 } },
		"more moves than the budget has":             func(p *Problem, _ *Plan) { p.Budget.MaxMoves = 1 },
		"more moves than a limit allows":             func(p *Problem, _ *Plan) { p.Limits, p.Pods[0].Limits = []int{0}, []int{0} },
		"moves at a time that a limit lets take turns": func(p *Problem, plan *Plan) {
			p.Limits = []int{1}
			for i := range p.Pods {
				p.Pods[i].Limits, p.Pods[i].Request = []int{0}, []int64{0}
			}
			plan.Moves[1].After = nil
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			p := cluster(t, "4: 3", "5: 2 2", "2:")
			for i := range p.Pods {
				p.Pods[i].Kind = i
			}
			p = p.wanting(anywhere(p), 4)
			r, err := CheapestMoves(p)
			if err != nil || !r.Found || len(r.Plan.Moves) != 2 {
				t.Fatalf("Best: %+v, %v", r, err)
			}
			change(&p, &r.Plan)
			if err := p.check(r.Plan); err == nil {
				t.Errorf("check of %+v: want an error", r.Plan)
			}
		})
	}
}
