// Package placement decides which members of a group of gangs go where: which
// of the pending members make up the minimum, which topology domain takes them,
// in what order they are placed, and what to try next when that fails.
//
// It returns a whole placement or reports how far it came: a Result is complete only if every gang
// has its minimum inside one domain of its required topology.
//
// It knows neither pods nor filters nor scores. It asks a World what fits where and which node is best, and undoes its
// changes there in reverse order.
package placement
