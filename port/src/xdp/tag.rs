//! The tag of a VLAN (IEEE 802.1Q): taken out of what is received, put into what is sent. Nothing above the port knows of it.

/// Bytes of a tag, between the addresses and the type of a frame.
pub(super) const TAG_BYTES: usize = 4;
const ADDRESSES_BYTES: usize = 12;
const TYPE: [u8; 2] = [0x81, 0x00];

/// The frame without its tag, which it must have: the program saw it.
pub(super) fn untag(frame: &mut [u8]) -> &mut [u8] {
    frame.copy_within(..ADDRESSES_BYTES, TAG_BYTES);
    &mut frame[TAG_BYTES..]
}

/// Puts a tag into the frame that begins after [`TAG_BYTES`] bytes of room. Priority 0.
pub(super) fn tag(room_and_frame: &mut [u8], vlan: u16) {
    room_and_frame.copy_within(TAG_BYTES..TAG_BYTES + ADDRESSES_BYTES, 0);
    let place = &mut room_and_frame[ADDRESSES_BYTES..ADDRESSES_BYTES + TAG_BYTES];
    place[..2].copy_from_slice(&TYPE);
    place[2..].copy_from_slice(&vlan.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_in_behind_the_addresses_and_comes_out_again() {
        let frame: Vec<u8> = (1..=60).collect();
        let mut tagged = [&[0; TAG_BYTES][..], &frame].concat();
        tag(&mut tagged, 0x123);
        assert_eq!(tagged[..12], frame[..12]);
        assert_eq!(tagged[12..16], [0x81, 0, 1, 0x23]);
        assert_eq!(tagged[16..], frame[12..]);
        assert_eq!(untag(&mut tagged), frame);
    }
}
