// Package planner plans a whole gang at once on the snapshot of the running scheduling cycle: which member goes to
// which node if the minimum fits, and why not if it does not.
//
// It is the adapter between package placement, which searches among indexes, and the filters and scores of a profile,
// which it runs through package whatif. Members that scheduling cannot tell apart are one class. Nodes are filtered and
// scored once per class, and again only where something changed. A plan costs about classes x nodes seen + members.
//
// It leaves the snapshot unchanged, holds nothing and records nothing.
package planner
