// Package gpucards chooses which GPU card of a node a pod gets, and reads what is written
// about cards.
//
// A pod is on one card, never on parts of several. A pod that may be on any card counts on every
// one, so no card is oversold for what is not known. The same cards and the same pods in the same
// order always lead to the same choices.
//
// It knows neither pods nor nodes; memory is in MiB.
package gpucards
