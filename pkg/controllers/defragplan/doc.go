// Package defragplan reconciles DefragmentationPlans. It reserves the capacity that the moves free for the plan's goal,
// and the target of each move, and then lets PodMigrations move the pods, a bounded number at a time. Package migration
// in pkg/rules decides what comes next.
//
// Decisions are made from live reads of the API server, and a status is written before the action that it announces.
package defragplan
