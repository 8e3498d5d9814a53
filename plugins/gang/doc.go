// Package gang is the Gang plugin: it plans gangs whole, leads their members to
// the nodes of the plan, holds them until the minimum stands, and releases them
// together.
//
// The rules are in plugins/internal/gang (what happens next) and
// plugins/internal/placement (who goes where); this package translates between
// them and the scheduling framework. Its invariant: no member binds before its
// group is released, and what is held is in the ledger or in the scheduler's
// cache, never in both and never in neither.
//
// It does not order the queue, bind, or evict.
package gang
