// Package verifydocs checks that the docs say what the code does: every argument, extension point, metric, reason and
// manifest that users see is described where they look for it. It has tests only.
package verifydocs
