// Package gang is the Gang plugin: it plans gangs whole, leads their members to
// the nodes of the plan, holds them until the minimum is reached, and releases them
// together.
//
// The rules are in pkg/rules/gangstate (what happens next) and
// pkg/rules/placement (which member goes where); this package translates between
// them and the scheduling framework. Its invariant: no member binds before its
// group is released, and the place of a member is in the ledger while it is planned,
// in the scheduler's cache once it is held, never in neither and never counted twice.
//
// It does not order the queue, bind, or evict.
package gang
