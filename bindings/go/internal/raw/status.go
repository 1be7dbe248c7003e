package raw

// Status is pkv_status.
type Status int32

// What this binding itself needs to know of statuses.
const (
	OK             Status = 0
	BufferTooSmall Status = 103
	OutOfBlocks    Status = 200
)
