//! What the remote end told it has beyond what it acknowledged (RFC 2018), and what follows from it for
//! the repair of losses (RFC 6675).
//!
//! ```text
//! SND.UNA                                             SND.NXT
//!    |--- hole ---|### block ###|- hole -|## block ##|
//! ```

use crate::wire::TcpSeqNumber;

/// Blocks remembered. What is told beyond them is sent again once more, at worst.
const BLOCKS_MAX: usize = 8;

/// RFC 6675 2, DupThresh: as many blocks, or about as many segments, have arrived beyond a segment
/// that is taken to be lost.
const DUP_THRESH: usize = 3;

/// Octets that the remote end has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
struct Block {
    start: TcpSeqNumber,
    /// Behind the last.
    end: TcpSeqNumber,
}

impl Block {
    const NONE: Block = Block { start: TcpSeqNumber(0), end: TcpSeqNumber(0) };

    fn len(&self) -> usize {
        self.end - self.start
    }
}

/// Octets that the remote end lacks, before a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hole {
    start: TcpSeqNumber,
    end: TcpSeqNumber,
    /// So much beyond it has arrived that it cannot be on its way any more.
    is_lost: bool,
}

#[derive(Debug)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub(super) struct Scoreboard {
    /// The first `len` of them count: in order, with holes before and between them.
    blocks: [Block; BLOCKS_MAX],
    len: u8,
    /// The loss under repair was found while blocks were known, so they say what is to be sent again.
    in_recovery: bool,
    /// HighRxt, of this recovery: behind the last octet that was sent again.
    sent_again: Option<TcpSeqNumber>,
    /// SND.NXT when it was. Blocks beyond tell of what left after it.
    sent_again_before: TcpSeqNumber,
}

impl Scoreboard {
    pub(super) const fn new() -> Scoreboard {
        Scoreboard {
            blocks: [Block::NONE; BLOCKS_MAX],
            len: 0,
            in_recovery: false,
            sent_again: None,
            sent_again_before: TcpSeqNumber(0),
        }
    }

    /// Forget everything, as after a retransmission time-out: the remote end may have dropped what it
    /// told to have (RFC 2018 8).
    pub(super) fn clear(&mut self) {
        *self = Scoreboard::new();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn blocks(&self) -> &[Block] {
        &self.blocks[..usize::from(self.len)]
    }

    /// Take note of an acknowledgement and of the blocks that came with it. Returns whether
    /// they tell of octets not known to have arrived.
    pub(super) fn update(
        &mut self,
        una: TcpSeqNumber,
        next: TcpSeqNumber,
        ranges: &[Option<(u32, u32)>],
    ) -> bool {
        self.advance(una);
        // Numbers half the sequence space apart are each before the other: distances are not.
        let beyond = |number: u32| number.wrapping_sub(una.0 as u32);
        let sent = if una < next { next - una } else { 0 };
        let mut is_news = false;
        for &(start, end) in ranges.iter().flatten() {
            // A block that is acknowledged tells of a duplicate (RFC 2883); others are nonsense.
            let (from, to) = (beyond(start), beyond(end));
            if 0 < from && from < to && to as usize <= sent {
                is_news |=
                    self.insert(Block { start: una + from as usize, end: una + to as usize });
            }
        }
        is_news
    }

    /// What is acknowledged is no longer of interest.
    fn advance(&mut self, una: TcpSeqNumber) {
        let acknowledged = self.blocks().iter().take_while(|block| block.start <= una).count();
        if acknowledged > 0 {
            self.remove(0, acknowledged);
        }
        if self.sent_again.is_some_and(|end| end <= una) {
            self.sent_again = None;
        }
    }

    fn remove(&mut self, at: usize, count: usize) {
        let len = usize::from(self.len);
        self.blocks.copy_within(at + count..len, at);
        self.len -= count as u8;
    }

    /// Returns whether any of the block is new.
    fn insert(&mut self, block: Block) -> bool {
        let blocks = self.blocks();
        let at = blocks.iter().take_while(|other| other.end < block.start).count();
        let touching = blocks[at..].iter().take_while(|other| other.start <= block.end).count();
        let len = blocks.len();
        if touching == 0 {
            if len == BLOCKS_MAX {
                return false;
            }
            self.blocks.copy_within(at..len, at + 1);
            self.blocks[at] = block;
            self.len += 1;
            return true;
        }
        let merged = Block {
            start: self.blocks[at].start.min(block.start),
            end: self.blocks[at + touching - 1].end.max(block.end),
        };
        let is_news = touching > 1 || self.blocks[at] != merged;
        self.blocks[at] = merged;
        self.remove(at + 1, touching - 1);
        is_news
    }

    fn holes(&self, una: TcpSeqNumber, mss: usize) -> impl Iterator<Item = Hole> + '_ {
        let mut start = una;
        let mut beyond: usize = self.blocks().iter().map(Block::len).sum();
        self.blocks().iter().enumerate().map(move |(at, block)| {
            // RFC 6675 4, IsLost.
            let is_lost = self.blocks().len() - at >= DUP_THRESH || beyond > (DUP_THRESH - 1) * mss;
            let hole = Hole { start, end: block.start, is_lost };
            start = block.end;
            beyond -= block.len();
            hole
        })
    }

    /// Whether the oldest octet is lost.
    pub(super) fn is_first_lost(&self, una: TcpSeqNumber, mss: usize) -> bool {
        self.holes(una, mss).next().is_some_and(|hole| hole.is_lost)
    }

    /// A loss was found, and is repaired from here on: by the blocks, if there are any.
    pub(super) fn begin_recovery(&mut self) {
        self.in_recovery = !self.is_empty();
        self.sent_again = None;
    }

    pub(super) fn end_recovery(&mut self) {
        self.in_recovery = false;
        self.sent_again = None;
    }

    /// Whether the loss under repair is repaired by the blocks.
    pub(super) fn in_recovery(&self) -> bool {
        self.in_recovery
    }

    /// Octets up to `next` that are not on their way any more: that arrived, or are lost and
    /// were not sent again. What was sent without these is Pipe (RFC 6675 4, SetPipe).
    pub(super) fn left_network(&self, una: TcpSeqNumber, next: TcpSeqNumber, mss: usize) -> usize {
        let within = |start: TcpSeqNumber, end: TcpSeqNumber| {
            let end = end.min(next);
            if start < end { end - start } else { 0 }
        };
        let arrived: usize = self.blocks().iter().map(|block| within(block.start, block.end)).sum();
        if !self.in_recovery {
            return arrived;
        }
        let lost = self.holes(una, mss).filter(|hole| hole.is_lost);
        arrived + lost.map(|hole| within(self.unrepaired(&hole), hole.end)).sum::<usize>()
    }

    /// Where what was not sent again of a hole begins.
    fn unrepaired(&self, hole: &Hole) -> TcpSeqNumber {
        self.sent_again.map_or(hole.start, |end| end.max(hole.start))
    }

    /// The first octets that are lost and were not sent again (RFC 6675 4, NextSeg, rule 1): the
    /// first of them, and how many there are.
    pub(super) fn next_lost(&self, una: TcpSeqNumber, mss: usize) -> Option<(TcpSeqNumber, usize)> {
        self.holes(una, mss)
            .take_while(|hole| hole.is_lost)
            .map(|hole| (self.unrepaired(&hole), hole.end))
            .find(|(start, end)| start < end)
            .map(|(start, end)| (start, end - start))
    }

    /// Octets before the first block.
    pub(super) fn first_hole_len(&self, una: TcpSeqNumber) -> Option<usize> {
        self.blocks().first().map(|block| block.start - una)
    }

    /// What ends at `end` was sent again, and nothing beyond `next` was sent before.
    pub(super) fn on_sent_again(&mut self, end: TcpSeqNumber, next: TcpSeqNumber) {
        self.sent_again = Some(self.sent_again.map_or(end, |before| before.max(end)));
        self.sent_again_before = next;
    }

    /// Whether the oldest octet was sent again.
    pub(super) fn is_first_sent_again(&self) -> bool {
        self.sent_again.is_some()
    }

    /// Whether what was sent again is lost too: as much as proves a loss left after it, and arrived.
    pub(super) fn is_lost_again(&self, mss: usize) -> bool {
        let beyond = |block: &Block| {
            let start = block.start.max(self.sent_again_before);
            if start < block.end { block.end - start } else { 0 }
        };
        self.sent_again.is_some()
            && self.blocks().iter().map(beyond).sum::<usize>() > (DUP_THRESH - 1) * mss
    }

    /// The first octet from `seq` on that the remote end is not known to have.
    pub(super) fn skip(&self, seq: TcpSeqNumber) -> TcpSeqNumber {
        let has = |block: &&Block| block.start <= seq && seq < block.end;
        self.blocks().iter().find(has).map_or(seq, |block| block.end)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const MSS: usize = 10;
    const UNA: TcpSeqNumber = TcpSeqNumber(i32::MAX - 50);

    fn at(offset: usize) -> TcpSeqNumber {
        UNA + offset
    }

    fn told(scoreboard: &mut Scoreboard, ranges: &[(usize, usize)]) -> bool {
        let number = |offset| at(offset).0 as u32;
        let ranges: std::vec::Vec<_> =
            ranges.iter().map(|&(start, end)| Some((number(start), number(end)))).collect();
        scoreboard.update(UNA, at(200), &ranges)
    }

    fn with(ranges: &[(usize, usize)]) -> Scoreboard {
        let mut scoreboard = Scoreboard::new();
        for range in ranges {
            assert!(told(&mut scoreboard, &[*range]));
        }
        scoreboard
    }

    fn blocks(scoreboard: &Scoreboard) -> std::vec::Vec<(usize, usize)> {
        scoreboard.blocks().iter().map(|block| (block.start - UNA, block.end - UNA)).collect()
    }

    #[test]
    fn blocks_are_kept_in_order_and_merge() {
        let mut it = with(&[(100, 110), (20, 30), (60, 70)]);
        assert_eq!(blocks(&it), [(20, 30), (60, 70), (100, 110)]);
        assert!(told(&mut it, &[(30, 40)]));
        assert!(told(&mut it, &[(50, 65)]));
        assert_eq!(blocks(&it), [(20, 40), (50, 70), (100, 110)]);
        assert!(told(&mut it, &[(40, 50)]));
        assert_eq!(blocks(&it), [(20, 70), (100, 110)]);
        assert!(told(&mut it, &[(10, 120)]));
        assert_eq!(blocks(&it), [(10, 120)]);
    }

    #[test]
    fn what_is_known_is_no_news() {
        let mut it = with(&[(20, 40)]);
        assert!(!told(&mut it, &[(20, 40), (25, 30)]));
        assert!(told(&mut it, &[(20, 40), (39, 41)]));
    }

    #[test]
    fn blocks_that_cannot_be_are_ignored() {
        let mut it = Scoreboard::new();
        // Acknowledged, of no octet, backwards, beyond what was sent.
        assert!(!told(&mut it, &[(0, 10), (20, 20), (30, 25), (190, 201)]));
        // Half the sequence space away.
        let far = UNA.0 as u32 ^ 1 << 31;
        for end in [far - 1, far, far + 1, (UNA - 1).0 as u32] {
            assert!(!it.update(UNA, at(200), &[Some((at(10).0 as u32, end)), Some((far, end))]));
        }
        // More was acknowledged than was sent.
        assert!(!it.update(at(10), UNA, &[Some((at(20).0 as u32, at(30).0 as u32))]));
        assert!(it.is_empty());
    }

    #[test]
    fn more_blocks_than_there_is_room_for_are_forgotten() {
        let ranges: std::vec::Vec<_> = (1..=BLOCKS_MAX).map(|n| (20 * n, 20 * n + 10)).collect();
        let mut it = with(&ranges);
        assert!(!told(&mut it, &[(5, 8)]));
        assert_eq!(blocks(&it), ranges);
        assert!(told(&mut it, &[(30, 40)]));
        assert!(told(&mut it, &[(5, 8)]));
    }

    #[test]
    fn acknowledged_blocks_are_dropped() {
        let mut it = with(&[(20, 30), (60, 70)]);
        it.update(at(30), at(200), &[]);
        assert_eq!(blocks(&it), [(60, 70)]);
        // The remote end should have acknowledged these octets: it has them no more.
        it.update(at(65), at(200), &[]);
        assert!(it.is_empty());
    }

    #[test]
    fn a_hole_is_lost_when_enough_arrived_beyond_it() {
        assert!(!with(&[(10, 30)]).is_first_lost(UNA, MSS));
        assert!(with(&[(10, 31)]).is_first_lost(UNA, MSS));
        assert!(!with(&[(10, 11), (12, 13)]).is_first_lost(UNA, MSS));
        assert!(with(&[(10, 11), (12, 13), (14, 15)]).is_first_lost(UNA, MSS));
        assert!(!Scoreboard::new().is_first_lost(UNA, MSS));
    }

    #[test]
    fn holes_are_repaired_one_after_the_other_and_once() {
        let mut it = with(&[(10, 20), (40, 80), (90, 100)]);
        it.begin_recovery();
        // Beyond the last hole one segment arrived: it may be on its way.
        assert_eq!(it.left_network(UNA, at(200), MSS), 60 + 10 + 20);
        assert_eq!(it.next_lost(UNA, MSS), Some((UNA, 10)));
        it.on_sent_again(at(10), at(200));
        assert_eq!(it.left_network(UNA, at(200), MSS), 60 + 20);
        assert_eq!(it.next_lost(UNA, MSS), Some((at(20), 20)));
        it.on_sent_again(at(30), at(200));
        assert_eq!(it.next_lost(UNA, MSS), Some((at(30), 10)));
        it.on_sent_again(at(40), at(200));
        assert_eq!(it.next_lost(UNA, MSS), None);
        assert_eq!(it.left_network(UNA, at(200), MSS), 60);
    }

    #[test]
    fn what_was_sent_again_is_lost_again_when_enough_that_left_later_arrived() {
        let mut it = with(&[(10, 60)]);
        it.begin_recovery();
        it.on_sent_again(at(10), at(100));
        assert!(told(&mut it, &[(60, 120)]));
        assert!(!it.is_lost_again(MSS));
        assert!(told(&mut it, &[(120, 121)]));
        assert!(it.is_lost_again(MSS));
        it.on_sent_again(at(10), at(130));
        assert!(!it.is_lost_again(MSS));
    }

    #[test]
    fn what_the_remote_end_has_is_skipped() {
        let it = with(&[(10, 20), (40, 80)]);
        assert_eq!(it.skip(at(5)), at(5));
        assert_eq!(it.skip(at(10)), at(20));
        assert_eq!(it.skip(at(79)), at(80));
        assert_eq!(it.skip(at(80)), at(80));
    }

    /// Octets one by one, which the scoreboard must agree with.
    #[test]
    fn random_blocks_and_acknowledgements_agree_with_a_naive_model() {
        use rand::Rng;

        const OCTETS: usize = 200;
        let mut rng = rand::thread_rng();
        for _ in 0..500 {
            let mut it = Scoreboard::new();
            let mut has = [false; OCTETS];
            let mut una = 0;
            for _ in 0..40 {
                if rng.gen_ratio(1, 8) {
                    una += rng.gen_range(0..20).min(OCTETS - una - 1);
                    // What is behind a hole is acknowledged with it, or was dropped by the remote end.
                    let mut next = una;
                    while next < OCTETS && has[next] {
                        has[next] = false;
                        next += 1;
                    }
                    has[..una].fill(false);
                    it.update(at(una), at(OCTETS), &[]);
                }
                let (start, len) = (rng.gen_range(0..OCTETS), rng.gen_range(0..20));
                let end = (start + len).min(OCTETS);
                let range = Some((at(start).0 as u32, at(end).0 as u32));
                let before = has;
                if start > una {
                    has[start..end].fill(true);
                }
                let runs = (1..OCTETS).filter(|&at| has[at] && !has[at - 1]).count();
                if runs > BLOCKS_MAX {
                    has = before;
                }
                assert_eq!(it.update(at(una), at(OCTETS), &[range]), has != before);
                for offset in una..OCTETS {
                    assert_eq!(it.skip(at(offset)) != at(offset), has[offset]);
                }
                let arrived = has.iter().filter(|it| **it).count();
                assert_eq!(it.left_network(at(una), at(OCTETS), MSS), arrived);
            }
        }
    }
}
