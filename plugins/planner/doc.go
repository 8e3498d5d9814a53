// Package planner plans a whole gang at once on the snapshot of the running scheduling
// cycle: which member goes to which node if the minimum fits, and why not if it does not.
//
// It is the adapter between package placement, which searches among indexes, and the
// filters and scores of a profile, which it asks through package whatif. Members that
// scheduling cannot tell apart are one class; nodes are filtered and scored once per
// class, and after that only where something changed. A plan costs about classes x nodes
// seen + members.
//
// It leaves no trace in the snapshot, holds nothing and records nothing.
package planner
