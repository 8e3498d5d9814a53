// Package podclass sorts pods into classes that scheduling cannot tell apart, so that a plan filters and scores nodes
// once per class. It knows what the scheduler and the plugins of a profile read of a pod: its spec, its claims, and of
// its labels those that something selects by.
package podclass
