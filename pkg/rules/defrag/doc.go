// Package defrag finds which running pods to move so that room that is scattered becomes room that
// can be used: [CheapestMoves] finds the cheapest moves after which one more gang fits, [EmptyUnits] moves that
// empty whole nodes or domains.
//
// A plan is whole and in order. Each move has room on its target while the pod is still on its
// source, with the place of the waiting gang taken from the beginning; no pod moves twice, no bound
// is exceeded, and no move is in it that could be left out.
// Every plan is checked for all but the last before it is returned, without trust in how it was made.
//
// It decides; callers reserve and evict. It knows no clock, no API server and no scheduler: the
// problem's Fits reports what else keeps a pod off a node. Values go in, values come out, the same
// for the same problem.
//
// The search is a branch and bound over ejection chains (Glover 1996): an item to be placed either
// fits a node or pushes out pods to make room, which then have to be placed in turn. It runs by
// limited discrepancy (Harvey and Ginsberg 1995): first as a greedy descent into each domain, then
// with more and more second choices, until everything was tried or its steps are used up.
package defrag
